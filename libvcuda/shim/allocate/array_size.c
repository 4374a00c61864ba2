/* The memory of an array's texels, in bytes.  */

#include "allocate/array_size.h"

#include <stdbool.h>

/* The texels of a format are stored in blocks of SIDE by SIDE, each of BYTES. PER_CHANNEL:
   multiplied by the descriptor's NumChannels.  */
struct format
{
  unsigned int code, bytes, side;
  bool per_channel;
};

static const struct format formats[] = {
  { CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, true },
  { CU_AD_FORMAT_SIGNED_INT8, 1, 1, true },
  { CU_AD_FORMAT_UNSIGNED_INT16, 2, 1, true },
  { CU_AD_FORMAT_SIGNED_INT16, 2, 1, true },
  { CU_AD_FORMAT_HALF, 2, 1, true },
  { CU_AD_FORMAT_UNSIGNED_INT32, 4, 1, true },
  { CU_AD_FORMAT_SIGNED_INT32, 4, 1, true },
  { CU_AD_FORMAT_FLOAT, 4, 1, true },
  { CU_AD_FORMAT_UNORM_INT8X1, 1, 1, false },
  { CU_AD_FORMAT_SNORM_INT8X1, 1, 1, false },
  { CU_AD_FORMAT_UNORM_INT8X2, 2, 1, false },
  { CU_AD_FORMAT_SNORM_INT8X2, 2, 1, false },
  { CU_AD_FORMAT_UNORM_INT16X1, 2, 1, false },
  { CU_AD_FORMAT_SNORM_INT16X1, 2, 1, false },
  { CU_AD_FORMAT_UNORM_INT8X4, 4, 1, false },
  { CU_AD_FORMAT_SNORM_INT8X4, 4, 1, false },
  { CU_AD_FORMAT_UNORM_INT16X2, 4, 1, false },
  { CU_AD_FORMAT_SNORM_INT16X2, 4, 1, false },
  { CU_AD_FORMAT_UNORM_INT16X4, 8, 1, false },
  { CU_AD_FORMAT_SNORM_INT16X4, 8, 1, false },
  { CU_AD_FORMAT_UNORM_INT_101010_2, 4, 1, false },
  { CU_AD_FORMAT_BC1_UNORM, 8, 4, false },
  { CU_AD_FORMAT_BC1_UNORM_SRGB, 8, 4, false },
  { CU_AD_FORMAT_BC4_UNORM, 8, 4, false },
  { CU_AD_FORMAT_BC4_SNORM, 8, 4, false },
  { CU_AD_FORMAT_BC2_UNORM, 16, 4, false },
  { CU_AD_FORMAT_BC2_UNORM_SRGB, 16, 4, false },
  { CU_AD_FORMAT_BC3_UNORM, 16, 4, false },
  { CU_AD_FORMAT_BC3_UNORM_SRGB, 16, 4, false },
  { CU_AD_FORMAT_BC5_UNORM, 16, 4, false },
  { CU_AD_FORMAT_BC5_SNORM, 16, 4, false },
  { CU_AD_FORMAT_BC6H_UF16, 16, 4, false },
  { CU_AD_FORMAT_BC6H_SF16, 16, 4, false },
  { CU_AD_FORMAT_BC7_UNORM, 16, 4, false },
  { CU_AD_FORMAT_BC7_UNORM_SRGB, 16, 4, false },
  /* Video frames: a full plane of brightness and planes of colour of a half or a quarter of its
     size, here per two by two texels.  */
  { CU_AD_FORMAT_NV12, 6, 2, false },
  { CU_AD_FORMAT_P010, 12, 2, false },
  { CU_AD_FORMAT_P016, 12, 2, false },
  { CU_AD_FORMAT_UINT8_SEMIPLANAR_420, 6, 2, false },
  { CU_AD_FORMAT_UINT16_SEMIPLANAR_420, 12, 2, false },
  { CU_AD_FORMAT_UINT8_PLANAR_420, 6, 2, false },
  { CU_AD_FORMAT_UINT16_PLANAR_420, 12, 2, false },
  { CU_AD_FORMAT_NV16, 8, 2, false },
  { CU_AD_FORMAT_P210, 16, 2, false },
  { CU_AD_FORMAT_P216, 16, 2, false },
  { CU_AD_FORMAT_YUY2, 8, 2, false },
  { CU_AD_FORMAT_Y210, 16, 2, false },
  { CU_AD_FORMAT_Y216, 16, 2, false },
  { CU_AD_FORMAT_UINT8_PACKED_422, 8, 2, false },
  { CU_AD_FORMAT_UINT8_SEMIPLANAR_422, 8, 2, false },
  { CU_AD_FORMAT_UINT8_PLANAR_422, 8, 2, false },
  { CU_AD_FORMAT_UINT16_SEMIPLANAR_422, 16, 2, false },
  { CU_AD_FORMAT_UINT16_PLANAR_422, 16, 2, false },
  { CU_AD_FORMAT_UINT8_PACKED_444, 3, 1, false },
  { CU_AD_FORMAT_UINT8_SEMIPLANAR_444, 3, 1, false },
  { CU_AD_FORMAT_UINT8_PLANAR_444, 3, 1, false },
  { CU_AD_FORMAT_Y444_PLANAR8, 3, 1, false },
  { CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 1, false },
  { CU_AD_FORMAT_UINT16_SEMIPLANAR_444, 6, 1, false },
  { CU_AD_FORMAT_UINT16_PLANAR_444, 6, 1, false },
  { CU_AD_FORMAT_Y444_PLANAR10, 6, 1, false },
  { CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 6, 1, false },
  { CU_AD_FORMAT_AYUV, 4, 1, false },
  { CU_AD_FORMAT_Y410, 4, 1, false },
  { CU_AD_FORMAT_Y416, 8, 1, false },
};

/* A format of a newer driver counts as the widest known one: nothing may be free of charge.  */
static const struct format unknown = { 0, 4, 1, true };

static const struct format *
format_of (CUarray_format code)
{
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (formats[i].code == (unsigned int) code)
      return &formats[i];
  return &unknown;
}

static uint64_t
at_level (uint64_t extent, unsigned int level)
{
  uint64_t smaller = level < 64 ? extent >> level : 0;
  return smaller ? smaller : 1; /* an extent that isn't used is 0 and counts as 1 */
}

static uint64_t
blocks (uint64_t extent, unsigned int side)
{
  return extent / side + (extent % side != 0);
}

uint64_t
vcuda_array_bytes (const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned int levels)
{
  const struct format *format = format_of (wanted->Format);
  uint64_t unit = (uint64_t) format->bytes * (format->per_channel ? wanted->NumChannels : 1);
  /* Layers and the faces of a cube are as many at each level.  */
  bool layered = wanted->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  uint64_t sum = 0;
  for (unsigned int level = 0; level < levels; level++)
    {
      uint64_t width = at_level (wanted->Width, level), height = at_level (wanted->Height, level);
      uint64_t depth = at_level (wanted->Depth, layered ? 0 : level), bytes;
      if (__builtin_mul_overflow (unit, blocks (width, format->side), &bytes)
          || __builtin_mul_overflow (bytes, blocks (height, wanted->Height ? format->side : 1),
                                     &bytes)
          || __builtin_mul_overflow (bytes, depth, &bytes)
          || __builtin_add_overflow (sum, bytes, &sum))
        return UINT64_MAX;
      /* The driver makes no level below one texel.  */
      if (width == 1 && height == 1 && (layered || depth == 1))
        break;
    }
  return sum;
}
