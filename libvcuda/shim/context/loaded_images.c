/* A hash table of images by handle. Each image has a list of the contexts that it is in.  */

#include "context/loaded_images.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256

/* A variable of an image of unknown size: counted once, when the driver first named it.  */
struct named
{
  struct named *next;
  CUdeviceptr start;
};

struct place
{
  struct place *next;
  CUcontext context;
  int gpu;
  uint64_t bytes;
  struct named *named;
};

struct vcuda_image
{
  struct vcuda_image *next;
  const void *handle;
  struct vcuda_image_size size;
  bool library;
  struct place *places;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct vcuda_image *buckets[BUCKETS];

static struct vcuda_image **
bucket_of (const void *handle)
{
  return &buckets[(uint64_t) (uintptr_t) handle * 0x9e3779b97f4a7c15ull >> 56];
}

static struct vcuda_image *
find (const void *handle)
{
  struct vcuda_image *image = *bucket_of (handle);
  while (image && image->handle != handle)
    image = image->next;
  return image;
}

static struct place *
place_in (const struct vcuda_image *image, CUcontext context)
{
  struct place *place = image->places;
  while (place && place->context != context)
    place = place->next;
  return place;
}

/* IMAGE's place in CHARGE's context, made if there is none.  */
static struct place *
place_for (struct vcuda_image *image, const struct vcuda_charge *charge)
{
  struct place *place = place_in (image, charge->context);
  if (place || !(place = malloc (sizeof *place)))
    return place;
  *place = (struct place){ .next = image->places, .context = charge->context, .gpu = charge->gpu };
  image->places = place;
  return place;
}

static void
drop_place (struct place *place, uint64_t *bytes)
{
  if (place->gpu >= 0)
    bytes[place->gpu] += place->bytes;
  for (struct named *next, *named = place->named; named; named = next)
    {
      next = named->next;
      free (named);
    }
  free (place);
}

void
vcuda_image_loaded (const void *handle, const struct vcuda_image_size *size, bool library)
{
  struct vcuda_image *image = malloc (sizeof *image);
  if (!image)
    return;
  *image = (struct vcuda_image){ .handle = handle, .size = *size, .library = library };
  vcuda_image_put (image);
}

bool
vcuda_image_missing (const void *handle, CUcontext context, uint64_t *bytes)
{
  vcuda_lock (&mutex);
  const struct vcuda_image *image = find (handle);
  bool missing = image && !place_in (image, context);
  if (missing)
    *bytes = image->size.bytes;
  vcuda_unlock (&mutex);
  return missing;
}

void
vcuda_image_placed (const void *handle, const struct vcuda_charge *charge)
{
  vcuda_lock (&mutex);
  struct vcuda_image *image = find (handle);
  struct place *place = image ? place_for (image, charge) : NULL;
  if (place)
    place->bytes += charge->bytes;
  vcuda_unlock (&mutex);
}

bool
vcuda_image_size_unknown (const void *handle)
{
  vcuda_lock (&mutex);
  const struct vcuda_image *image = find (handle);
  bool unknown = image && !image->size.known;
  vcuda_unlock (&mutex);
  return unknown;
}

/* The place of a variable that the driver named in CHARGE's context: a module is in one context
   only.  */
static struct place *
place_of_variable (struct vcuda_image *image, const struct vcuda_charge *charge)
{
  if (!image->library)
    return image->places;
  return charge->context ? place_for (image, charge) : NULL;
}

bool
vcuda_image_named (const void *handle, CUdeviceptr start, struct vcuda_charge *charge)
{
  struct named *named = malloc (sizeof *named);
  if (!named)
    return false;
  vcuda_lock (&mutex);
  struct vcuda_image *image = find (handle);
  struct place *place = image ? place_of_variable (image, charge) : NULL;
  bool is_new = place != NULL;
  for (struct named *each = place ? place->named : NULL; each && is_new; each = each->next)
    is_new = each->start != start;
  if (is_new)
    {
      *named = (struct named){ place->named, start };
      place->named = named;
      place->bytes += charge->bytes;
      charge->gpu = place->gpu;
    }
  vcuda_unlock (&mutex);
  if (!is_new)
    free (named);
  return is_new;
}

static struct vcuda_image *
unlink_at (struct vcuda_image **at)
{
  struct vcuda_image *image = *at;
  *at = image->next;
  return image;
}

struct vcuda_image *
vcuda_image_take (const void *handle)
{
  vcuda_lock (&mutex);
  struct vcuda_image **at = bucket_of (handle);
  while (*at && (*at)->handle != handle)
    at = &(*at)->next;
  struct vcuda_image *image = *at ? unlink_at (at) : NULL;
  vcuda_unlock (&mutex);
  return image;
}

void
vcuda_image_put (struct vcuda_image *image)
{
  vcuda_lock (&mutex);
  struct vcuda_image **at = bucket_of (image->handle);
  image->next = *at;
  *at = image;
  vcuda_unlock (&mutex);
}

void
vcuda_image_drop (struct vcuda_image *image, uint64_t *bytes)
{
  for (struct place *next, *place = image->places; place; place = next)
    {
      next = place->next;
      drop_place (place, bytes);
    }
  free (image);
}

/* True: IMAGE ended with the context, because a module is in one context only.  */
static bool
leaves (struct vcuda_image *image, CUcontext context, uint64_t *bytes)
{
  for (struct place **at = &image->places; *at; at = &(*at)->next)
    if ((*at)->context == context)
      {
        struct place *place = *at;
        *at = place->next;
        drop_place (place, bytes);
        return !image->library;
      }
  return false;
}

void
vcuda_images_take_context (CUcontext context, uint64_t *bytes)
{
  vcuda_lock (&mutex);
  for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
    for (struct vcuda_image **at = &buckets[bucket]; *at;)
      if (leaves (*at, context, bytes))
        vcuda_image_drop (unlink_at (at), bytes);
      else
        at = &(*at)->next;
  vcuda_unlock (&mutex);
}

void
vcuda_images_held (uint64_t *bytes)
{
  vcuda_lock (&mutex);
  for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
    for (const struct vcuda_image *image = buckets[bucket]; image; image = image->next)
      for (const struct place *place = image->places; place; place = place->next)
        if (place->gpu >= 0)
          bytes[place->gpu] += place->bytes;
  vcuda_unlock (&mutex);
}

void
vcuda_images_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  memset (buckets, 0, sizeof buckets);
}
