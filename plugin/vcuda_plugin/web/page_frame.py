"""The common part of the browser pages: frame, style, refresh script and security headers.

A page loads no other file: its style and script are inline, and the Content-Security-Policy allows
only these two, by hash. A script in a name that escaped escaping would therefore not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
from typing import NamedTuple

CONTENT_TYPE = "text/html; charset=utf-8"
REFRESH_SECONDS = 2
COLOURS = 8

_LIGHT = ("#2563c9", "#c2570c", "#0b8a6f", "#a3338b", "#8a6d00", "#5b50d6", "#c0304a", "#3f7a1f")
_DARK = ("#6ea8ff", "#ff9d57", "#43cfae", "#e98bd3", "#e0bf3f", "#a79dff", "#ff8093", "#93d069")


def _palette(colours: tuple[str, ...]) -> str:
    return "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))


_STYLE = (
    ":root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#1b2430;--soft:#5c6876;"
    "--line:#dde2e8;--track:#e9edf2;--bad:#b3261e;--badbg:#fdeceb;--good:#1d7a46;"
    + _palette(_LIGHT)
    + "}@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b212a;--ink:#e7ebf0;"
    "--soft:#9aa6b4;--line:#2d3642;--track:#2a323d;--bad:#ff8a80;--badbg:#3a1f20;--good:#6fd39b;"
    + _palette(_DARK)
    + "}}"
    + "".join(f".c{n}{{fill:var(--c{n})}}i.c{n}{{background:var(--c{n})}}" for n in range(COLOURS))
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.45 system-ui,sans-serif}
header,main{max-width:1080px;margin:0 auto;padding:0 20px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 18px;padding-top:22px}
h1{font-size:21px;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}h1 b{font-weight:600}
h1 span,.soft{color:var(--soft);font-weight:400}
nav{margin-left:auto;display:flex;gap:16px}a{color:inherit;text-underline-offset:3px}
nav a{color:var(--soft);text-decoration:none}nav a:hover,nav a[aria-current]{color:var(--ink)}
nav a[aria-current]{box-shadow:0 2px 0 var(--c0)}
.sum{margin:4px 0 16px;color:var(--soft)}
.stale .sum::after{content:" · not refreshed: no answer";color:var(--bad)}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 20px;
margin:0 0 16px}
.card h2{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 12px;font-size:16px;
margin:0 0 12px}
.card h2 .soft{font-size:13px;overflow-wrap:anywhere}
.state{margin-left:auto;font-size:13px;font-weight:500;color:var(--good)}
.state.bad,.bad{color:var(--bad)}.state.bad{background:var(--badbg);border-radius:6px;
padding:1px 8px}
.whole{display:grid;grid-template-columns:72px 1fr;gap:2px 12px;align-items:center;margin:0 0 10px}
.whole .says{grid-column:2;font-size:13px;color:var(--soft)}
svg.bar{display:block;width:100%;height:26px;background:var(--track);border-radius:6px}
svg.bar .asked{opacity:.35}svg.bar rect{stroke:var(--card);stroke-width:1px}
svg.bar line{stroke:var(--ink);stroke-width:2px}
svg.past{display:block;width:100%;height:40px;background:var(--track);border-radius:6px}
svg.past polyline{fill:none;stroke-width:1.5px;vector-effect:non-scaling-stroke}
svg.past .event{stroke:var(--bad);vector-effect:non-scaling-stroke;opacity:.6}
svg.past .compute{stroke:var(--ink)}svg.past .memory{stroke:var(--soft);stroke-dasharray:5 4}
p.sensors{margin:0 0 4px;font-size:13px;padding-left:84px}
svg.mini{display:block;width:100%;height:6px;background:var(--track);border-radius:3px;margin-top:3px}
table{width:100%;border-collapse:collapse;margin-top:12px;table-layout:fixed}
th{font-size:12px;font-weight:500;color:var(--soft);text-align:left;padding:0 12px 4px 0}
td{border-top:1px solid var(--line);padding:7px 12px 8px 0;vertical-align:top;font-size:14px;
font-variant-numeric:tabular-nums}
th:first-child{width:34%}td:last-child,th:last-child{padding-right:0}
.waits th:first-child{width:26%}.waits th:nth-child(2){width:14%}.waits th:nth-child(3){width:13%}
td.name{overflow-wrap:anywhere;padding-left:18px;text-indent:-18px}
summary{cursor:pointer;list-style:none}summary .of{white-space:nowrap}
summary .of::before{content:"\\25b8  ";content:"\\25b8  "/""}
[open]>summary .of::before{content:"\\25be  ";content:"\\25be  "/""}
ul.processes{margin:6px 0 0;padding:0;list-style:none;text-indent:0;font-size:13px}
td.notes{color:var(--soft);font-size:13px}
i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px}
.of{color:var(--soft)}
.wide{overflow-x:auto}.wide svg{display:block;margin:0 auto}
.wide text{fill:var(--ink);font-size:12.5px}.wide text.small{fill:var(--soft);font-size:11.5px}
.wide text.bad{fill:var(--bad)}
.wide .numa{fill:none;stroke:var(--line);stroke-dasharray:4 4}
.wide .gpu,.wide .tenant{fill:var(--card);stroke:var(--line)}.wide .gpu.sick{stroke:var(--bad)}
.filter{max-width:1080px;margin:6px auto 0;padding:0 20px}
.filter input,.filter button{font:inherit;color:inherit;background:var(--card);
border:1px solid var(--line);border-radius:6px;padding:3px 10px}
:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
h3{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 12px;font-size:14px;font-weight:500;
margin:16px 0 8px}h3 .soft{font-size:13px;overflow-wrap:anywhere}.others{fill:var(--soft)}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.wide path{fill:none;stroke:var(--line);stroke-width:1.5px}
@media(max-width:640px){body{font-size:14px}header,main,.filter{padding:0 12px}
header{padding-top:14px}nav{margin-left:0}.card{padding:12px 14px}thead{display:none}
p.sensors{padding-left:0}.whole{grid-template-columns:1fr}.whole .says{grid-column:1}
tr{display:grid;grid-template-columns:1fr 1fr;gap:4px 14px;border-top:1px solid var(--line);
padding:8px 0}td{border:0;padding:0}td.name,td.notes{grid-column:1/3}}
@media print{nav,form{display:none}.card{break-inside:avoid}svg{print-color-adjust:exact}}
"""
)
# The server renders each page; the script only replaces the old content with the new, unless the
# keyboard's focus is in it. What the user has opened stays open.
_SCRIPT = """
async function again(){
  const main=document.querySelector("main");
  if(!document.hidden&&!main.querySelector(":focus-visible"))try{
    const page=await fetch(location.pathname+location.search,
      {headers:{Accept:"text/html"},cache:"no-store"});
    const fresh=new DOMParser().parseFromString(await page.text(),"text/html");
    if(!page.ok)throw page.status;
    for(const {id} of main.querySelectorAll("details[open]")){
      const same=fresh.getElementById(id);
      if(same)same.open=true
    }
    if(!main.querySelector(":focus-visible"))main.replaceWith(fresh.querySelector("main"));
    document.documentElement.classList.remove("stale");
  }catch(error){document.documentElement.classList.add("stale")}
  setTimeout(again,document.documentElement.dataset.every*1000)
}
setTimeout(again,document.documentElement.dataset.every*1000)
"""

# Of every answer.
ALWAYS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def headers(form_action: str = "'none'") -> tuple[tuple[str, str], ...]:
    """Headers of a page. form_action: where its forms may send, in the policy's words."""
    policy = (
        f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
        f"connect-src 'self'; img-src data:; base-uri 'none'; form-action {form_action}; "
        "frame-ancestors 'none'"
    )
    return (("Content-Type", CONTENT_TYPE), ("Content-Security-Policy", policy), ("Vary", "Accept"))


class Frame(NamedTuple):
    """What is around a page's content.

    title: of the window. place: where the figures are from, as "on node-1". links: (relative path,
    title) of its sibling pages; relative, so that a proxy may serve them below a path of its own.
    here: this page's. above: HTML between the heading and the content, which a refresh leaves as
    it is. refresh_seconds: how often the content is asked for again.
    """

    title: str
    place: str
    links: tuple[tuple[str, str], ...] = ()
    here: str = ""
    above: str = ""
    refresh_seconds: int = REFRESH_SECONDS


def page(frame: Frame, summary: str, content: str) -> bytes:
    """A complete page. content: HTML in which the caller has escaped all names."""
    links = "".join(
        f'<a href="{path}"{" aria-current=page" if path == frame.here else ""}>{title}</a>'
        for path, title in frame.links
    )
    preposition, _, place = frame.place.partition(" ")
    text = (
        f'<!doctype html><html lang="en" data-every="{frame.refresh_seconds}"><head>'
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<noscript><meta http-equiv="refresh" content="{frame.refresh_seconds * 2}"></noscript>'
        f'<title>{escape(frame.title)}</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body>"
        f"<header><h1><b>vcuda</b> <span>{preposition}</span> {escape(place)}</h1>"
        f"{f'<nav>{links}</nav>' if links else ''}</header>{frame.above}"
        f'<main><p class="sum">{escape(summary)}</p>{content}</main>'
        f"<script>{_SCRIPT}</script></body></html>"
    )
    return text.encode("utf-8", "replace")


def escape(text: object) -> str:
    """Escape for HTML text and attributes, cut to 256 characters; unprintable ones become "?"."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text)[:256])
    return html.escape(shown)
