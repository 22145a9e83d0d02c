package dashboard_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/store"
)

// everyPage is an address of each, and what shows that it is there.
var everyPage = map[string]string{
	"":                                    "svg.places .ribbons path",
	"#/?view=flows":                       "svg.flows .ribbons path",
	"#/weights?cluster=europe&model=chat": ".chart path",
	"#/engines":                           "tbody tr",
	"#/engine?name=fra-1":                 ".chart .point",
	"#/request":                           "input[name=id]",
	"#/what-if":                           "select[name=region] option",
	"#/overrides":                         "main p",
}

// TestChromiumMap: flows, prices and tables are there, live, with nothing from elsewhere.
func TestChromiumMap(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 860, false)
	b.visit(f.url(""), "svg.places .ribbons path")
	b.until("document.getElementById('badge').dataset.state === 'live'")
	b.says("europe")
	for range 2 { // it is live: the page changes with the ticks
		before := eval[string](b, "document.querySelector('.tiles').innerText")
		b.until("document.querySelector('.tiles').innerText !== " + quote(before))
	}
	b.until("document.querySelectorAll('main tbody tr').length >= 9")
	b.past(6)
	b.shoot("map")
	b.visit(f.url("#/?view=flows"), "svg.flows .ribbons path")
	require.Positive(t, eval[int](b, "document.querySelectorAll('svg.flows .node[href]').length"))
	b.shoot("flows")
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('select[name=model]').value = 'code', document.querySelector('select[name=model]').dispatchEvent(new Event('change'))"))
	b.until("location.hash.includes('model=code') && [...document.querySelectorAll('main tbody tr')].some((r) => r.innerText.startsWith('singapore')) === false")
	b.healthy("http://" + f.addr)
}

// TestChromiumEveryPage: each page is readable in a narrow window and in dark mode, and without
// an error.
func TestChromiumEveryPage(t *testing.T) {
	f := startFleet(t, world, "")
	narrow, dark := open(t, 360, 740, false), open(t, 1280, 860, true)
	for page, there := range everyPage {
		narrow.visit(f.url(page), there)
		require.LessOrEqual(t, eval[int](narrow, "document.documentElement.scrollWidth"), eval[int](narrow, "innerWidth"), "%s is wider than the window: %v", page, eval[[]string](narrow, wide))
		dark.visit(f.url(page), there)
		require.Empty(t, eval[[]string](dark, faint), page)
	}
	narrow.visit(f.url("#/?view=flows"), "svg.flows .ribbons path")
	narrow.shoot("narrow")
	dark.visit(f.url(""), "svg.places .ribbons path")
	dark.shoot("dark")
	narrow.healthy("http://" + f.addr)
	dark.healthy("http://" + f.addr)
	light := open(t, 1280, 860, false)
	for page, there := range everyPage {
		light.visit(f.url(page), there)
		require.Empty(t, eval[[]string](light, faint), page)
	}
}

// wide lists what reaches beyond a window; faint what text has less contrast to its ground than
// the 4.5 to 1 that the Web Content Accessibility Guidelines ask for.
const (
	wide  = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className).slice(0, 5)`
	faint = `(() => {
	const read = (c) => (c.match(/[\d.]+/g) ?? []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((a, v, i) => a + v * [0.2126, 0.7152, 0.0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = read(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest("title, option, .skip, .hidden, :disabled")) continue;
		const a = light(read(e.namespaceURI.endsWith("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color)), b = light(ground(e));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) bad.push(e.tagName + " " + e.textContent.slice(0, 30) + " " + contrast.toFixed(2));
	}
	return bad;
})()`
)

// TestChromiumKeyboard: Tab reaches everything that a mouse can use, and shows where it is;
// / begins a search.
func TestChromiumKeyboard(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 860, false)
	for _, page := range []string{"#/?view=flows", "#/what-if", "#/engines"} {
		b.visit(f.url(page), everyPage[page])
		f.hangUp() // so that nothing moves meanwhile
		b.do(chromedp.Evaluate[chromedp.Void](mark))
		n := eval[int](b, "document.querySelectorAll('[data-can]').length")
		require.Greater(t, n, 8)
		for range n + 10 {
			b.do(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate[chromedp.Void](reached))
		}
		require.Empty(t, eval[[]string](b, "[...document.querySelectorAll('[data-can]:not([data-reached])')].map((e) => e.outerHTML.slice(0, 120))"), page)
		require.Empty(t, eval[[]string](b, "[...document.querySelectorAll('[data-unseen]')].map((e) => e.outerHTML.slice(0, 120))"), "focus cannot be seen on %s", page)
		f.serve()
	}
	b.visit(f.url(""), everyPage[""])
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/"}) // as a keyboard does: who takes the key types no sign
	b.until("document.activeElement.name === 'q'")
	b.do(chromedp.KeyEvent("virg"), chromedp.KeyEvent(kb.Enter))
	b.until("location.hash === '#/engines?q=virg' && document.querySelectorAll('tbody tr').length === 2")
	b.says("2 engines fit")
	b.healthy("http://" + f.addr)
}

const (
	mark = `for (const e of document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']"))
		if (e.checkVisibility() && !e.disabled && !e.closest("[hidden]")) e.setAttribute("data-can", "")`
	reached = `(() => {
		const e = document.activeElement;
		if (!e.hasAttribute("data-can")) return;
		e.setAttribute("data-reached", "");
		const style = getComputedStyle(e), hit = e.querySelector(".hit");
		if (style.outlineStyle === "none" && !(hit && getComputedStyle(hit).stroke !== "none")) e.setAttribute("data-unseen", "");
	})()`
)

// TestChromiumWeights: a change stands in the chart, and what moved it is said.
func TestChromiumWeights(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 1000, false)
	b.visit(f.url("#/weights?cluster=europe&model=chat"), ".chart path")
	b.past(20)
	require.NoError(t, f.client().Override(t.Context(), store.Override{Kind: control.OverrideDrain, Subject: "fra-1"}))
	b.past(35)
	b.until("document.querySelectorAll('.chart .mark').length > 0 && [...document.querySelectorAll('.changes button')].length > 0")
	for begin := time.Now(); !b.chooseChange("override"); {
		require.Less(t, time.Since(begin), patience, "no change is by the override")
	}
	b.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	b.shoot("weights")
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('select[name=by]').value = 'engines', document.querySelector('select[name=by]').dispatchEvent(new Event('change'))"))
	b.until("document.querySelector('.key').innerText.includes('fra-2')")
	b.healthy("http://" + f.addr)
}

// chooseChange chooses one change after the other until one was moved by an input.
func (b *tab) chooseChange(input string) bool {
	b.t.Helper()
	for n := 0; n < eval[int](b, "document.querySelectorAll('.changes button').length"); n++ {
		plan := eval[string](b, fmt.Sprintf("(() => { const e = document.querySelectorAll('.changes button')[%d]; e.click(); return e.innerText.match(/plan (\\S+)/)[1]; })()", n))
		b.until("document.querySelector('.error') || document.body.innerText.includes(" + quote(" to "+plan+", at") + ")")
		if eval[bool](b, "[...document.querySelectorAll('.words strong')].some((e) => e.innerText.startsWith("+quote(input)+"))") {
			return true
		}
	}
	return false
}

// TestChromiumEngine: signals, profile, price, prediction and observation of one engine.
func TestChromiumEngine(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 1180, false)
	b.visit(f.url("#/engine?name=fra-1"), ".chart .point")
	for _, words := range []string{"KV cache in use", "of its capacity", "Own latency", "What data planes see", "europe", "one more costs"} {
		b.says(words)
	}
	b.until("document.querySelectorAll('.chart .line.second').length > 0 && /predicted \\(blue\\), .* observed/.test(document.body.innerText)")
	b.past(40)
	b.shoot("engine")
	b.visit(f.url("#/engine?name=nobody"), ".error")
	b.says(`there is no engine "nobody"`)
	b.mu.Lock()
	b.problems = nil
	b.mu.Unlock()
	b.visit(f.url("#/engines?q=fra&sort=load"), "tbody tr")
	b.until("document.querySelectorAll('tbody tr').length === 2")
	b.healthy("http://" + f.addr)
}

// ask sends one request and gives the name of its decision.
func (f *running) ask(cluster, model string) string {
	f.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":8,"messages":[{"role":"user","content":"Hi"}]}`, model)
	resp, err := http.Post(f.planes[cluster]+"/v1/chat/completions", "application/json", bytes.NewBufferString(body))
	require.NoError(f.t, err)
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	require.Equal(f.t, http.StatusOK, resp.StatusCode)
	id := resp.Header.Get("X-Wardrop-Decision")
	require.NotEmpty(f.t, id)
	return id
}

// TestChromiumRequest: a request that was sent is explained, whichever data plane routed it.
func TestChromiumRequest(t *testing.T) {
	f := startFleet(t, world, "")
	require.Eventually(t, func() bool {
		resp, err := http.Get(f.planes["asia"] + "/v1/models")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(b), "chat")
	}, patience, 20*time.Millisecond)
	id := f.ask("asia", "chat")
	b := open(t, 1100, 860, false)
	b.visit(f.url("#/request"), "input[name=id]")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=id]"), id+kb.Enter))
	b.says("a standard request for chat came to asia")
	b.says("Attempt 1")
	b.says("key hash")
	b.says("What was looked at, in order")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=engine]"), "fra-1"+kb.Enter))
	b.until("document.querySelectorAll('ul.words li').length > 0")
	b.shoot("request")
	b.visit(f.url("#/request?id=nothing"), ".error")
	b.says("no data plane made such a decision")
}

// TestChromiumWhatIf: what would follow is said beside what is.
func TestChromiumWhatIf(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 960, false)
	b.visit(f.url("#/what-if"), everyPage["#/what-if"])
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=engine]"), "fra-1"), chromedp.SendKeys(chromedp.CSS("input[name=engine]"), kb.Enter))
	b.until("document.querySelectorAll('.chips li').length === 1")
	b.do(chromedp.Evaluate[chromedp.Void](`(() => {
		const kind = document.querySelector("select[name=kind]");
		kind.value = "demand";
		kind.dispatchEvent(new Event("change"));
		document.querySelector("select[name=cluster]").value = "europe";
		document.querySelector("main form").requestSubmit();
	})()`))
	b.until("document.querySelectorAll('.chips li').length === 2")
	b.do(chromedp.Click(chromedp.CSS("button.main")))
	b.says("Largest moves")
	b.says("Today and then")
	b.until("document.querySelectorAll('tbody tr').length > 7")
	b.shoot("what-if")
	require.Empty(t, f.control.Overrides(time.Now()), "it changed nothing")
	b.healthy("http://" + f.addr)
}

// TestChromiumReadOnly: without a token in the configuration the page only shows.
func TestChromiumReadOnly(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 860, false)
	b.visit(f.url("#/overrides"), "main p")
	b.says("This page only shows.")
	require.Zero(t, eval[int](b, "document.querySelectorAll('main form, main button').length"))
	b.visit(f.url("#/engine?name=fra-1"), ".chart .point")
	require.Zero(t, eval[int](b, "[...document.querySelectorAll('main button')].filter((e) => e.checkVisibility() && /Drain|Cap/.test(e.innerText)).length"))
}

// TestChromiumOverride: who shows the token may drain an engine, and let it serve again.
func TestChromiumOverride(t *testing.T) {
	f := startFleet(t, world, "open sesame")
	b := open(t, 1280, 860, false)
	b.visit(f.url("#/overrides"), "input[name=token]")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=token]"), "wrong"+kb.Enter))
	b.says("That is not the token.")
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('input[name=token]').value = ''"), chromedp.SendKeys(chromedp.CSS("input[name=token]"), "open sesame"+kb.Enter))
	b.until("document.querySelector('input[name=engine]')")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=engine]"), "fra-1"+kb.Enter))
	b.says("drain/fra-1")
	b.shoot("overrides")
	require.Len(t, f.control.Overrides(time.Now()), 1)
	b.do(chromedp.Evaluate[chromedp.Void]("location.hash = '#/engine?name=fra-1'"))
	b.says("Let it serve again")
	b.do(chromedp.Evaluate[chromedp.Void]("[...document.querySelectorAll('main button')].find((e) => e.innerText === 'Let it serve again').click()"))
	require.Eventually(t, func() bool { return len(f.control.Overrides(time.Now())) == 0 }, patience, 20*time.Millisecond)
	b.healthy("http://" + f.addr)
}

// TestChromiumReconnect: while the control plane is away the page says so, and goes on by
// itself when it is back.
func TestChromiumReconnect(t *testing.T) {
	f := startFleet(t, world, "")
	b := open(t, 1280, 860, false)
	b.visit(f.url(""), "svg.places .ribbons path")
	b.until("document.getElementById('badge').dataset.state === 'live'")
	f.hangUp()
	b.says("no connection")
	f.serve()
	b.until("document.getElementById('badge').dataset.state === 'live'")
}
