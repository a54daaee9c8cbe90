package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// contrasts are the texts of the page whose colour stands out too little: under 4.5:1, as WCAG 2.2 asks for text (success criterion 1.4.3).
const contrasts = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
	const light = ([r, g, b]) => { const [R, G, B] = [r, g, b].map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * R + 0.7152 * G + 0.0722 * B; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
	const bad = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !e.checkVisibility() || e.tagName === "OPTION") continue;
		const a = light(rgb(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.add(ratio.toFixed(2) + " " + e.className + " " + walker.currentNode.data.trim().slice(0, 40));
	}
	return [...bad];
})()`

// named are the roles of what must have a name.
var named = []string{"button", "link", "textbox", "searchbox", "checkbox", "combobox", "region", "navigation", "columnheader", "rowheader", "heading"}

// accessible checks names, landmarks, headings, tables, contrast and the way of the keyboard.
func (b *browser) accessible() {
	b.t.Helper()
	tree := value(b, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	seen := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := strings.Trim(string(n.Role.Value), `"`)
		seen[role]++
		for _, want := range named {
			if role == want && (n.Name == nil || strings.Trim(string(n.Name.Value), `" `) == "") {
				b.t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, role := range []string{"main", "banner", "navigation", "search", "region", "heading", "table", "columnheader", "rowheader", "searchbox", "checkbox", "button"} {
		if seen[role] == 0 {
			b.t.Errorf("there is no %s among %v", role, seen)
		}
	}
	for _, scheme := range []string{"dark", "light"} {
		b.prefer(scheme)
		for _, text := range evaluate[[]string](b, contrasts) {
			b.t.Errorf("%s: too little contrast: %s", scheme, text)
		}
	}
	if titled := evaluate[[]string](b, "[...document.querySelectorAll('[title]')].map((e) => e.title)"); len(titled) > 0 {
		b.t.Errorf("%q stands where keys and screen readers do not find it", titled)
	}
	b.narrow()
	// The first key leads past what is the same everywhere. The page is opened anew, because Tab goes on from where one has clicked.
	b.run(chromedp.Reload())
	b.until("shown", "performance.getEntriesByName('moongate-shown').length")
	b.run(chromedp.KeyEvent(kb.Tab))
	if !evaluate[bool](b, "document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().left >= 0") {
		b.t.Error("the first Tab does not lead to the link to the routes")
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until("skipped to the routes", "document.activeElement.id === 'routes'")
}

// narrow checks the page on a telephone: nothing but sections scrolls sideways, and these by keys (WCAG 2.2, success criteria 1.4.10 and 2.1.1).
func (b *browser) narrow() {
	b.t.Helper()
	b.run(call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 320, Height: 800, DeviceScaleFactor: 1}))
	defer b.run(call(emulation.ClearDeviceMetricsOverride, cdp.Empty{}))
	if wide := evaluate[[]string](b, `document.documentElement.scrollWidth <= 320 ? [] : [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 320 && !e.closest(".scroll")).map((e) => e.outerHTML.slice(0, 80))`); len(wide) > 0 {
		b.t.Errorf("wider than a window of 320 pixels: %q", wide)
	}
	scrolling := evaluate[[]string](b, `[...document.querySelectorAll("main *")].filter((e) => !["TEXTAREA", "INPUT"].includes(e.tagName) && ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth).map((e) => e.id)`)
	if !slices.Contains(scrolling, "routes") {
		b.t.Errorf("%q scroll sideways, and the routes do not", scrolling)
	}
	for _, id := range scrolling {
		element := fmt.Sprintf("document.getElementById(%q)", id)
		if evaluate[int](b, element+".tabIndex") != 0 {
			b.t.Errorf("Tab does not lead to %s, which scrolls sideways", id)
			continue
		}
		b.do(element + ".focus()")
		b.run(chromedp.KeyEvent(kb.ArrowRight))
		b.until(id+" scrolled", element+".scrollLeft > 0")
	}
}
