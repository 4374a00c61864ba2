"""A web page on a phone: does it fit, and can it be read in light and in dark?"""

from __future__ import annotations

from support.host.browser import Browser

WIDTH = "[document.documentElement.scrollWidth, innerWidth]"
CONTRAST = """
(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.querySelector(".card"));
  const [ink, card] = [light(style.color), light(style.backgroundColor)];
  return [card > 0.5, (Math.max(ink, card) + 0.05) / (Math.min(ink, card) + 0.05)];
})()
"""


def check(tab: Browser, address: str) -> None:
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 3, "mobile": True}
    tab.send("Emulation.setDeviceMetricsOverride", **phone)
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        tab.send("Emulation.setEmulatedMedia", features=features)
        tab.open(address)
        assert tab.evaluate(WIDTH) == [360, 360]
        is_light, contrast = tab.evaluate(CONTRAST)
        # Source: WCAG 2.1, 1.4.6, what reads well for all.
        assert (is_light, contrast >= 7) == (scheme == "light", True)
