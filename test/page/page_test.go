package page

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var update = flag.Bool("update", false, "take the pictures of docs/dashboard.md")

// patience bounds each wait. Nothing that works comes near it.
const patience = 2 * time.Minute

// openWithin is how long after its load event the page may take to show the routes: what is asked of it, measured by the browser's clock.
const openWithin = 1000.0 // ms

// pictures is where the documents have theirs.
var pictures = filepath.Join("..", "..", "docs", "images")

// gateway is a moongate that can be started and killed.
type gateway struct {
	admin, url string // of its admin server and of its listener, such as http://127.0.0.1:9901
	command    []string
	running    *exec.Cmd
	output     bytes.Buffer
}

// start runs bin/moongate with thousands of routes.
func start(t *testing.T) *gateway {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "moongate"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; make build makes it", err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0") // two endpoints of loopback
	if err != nil {
		t.Fatal(err)
	}
	backend := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })}
	go backend.Serve(l)
	t.Cleanup(func() { backend.Close() })

	ports := freePorts(t, 3)
	clear, secure, admin := ports[0], ports[1], ports[2]
	g := &gateway{admin: fmt.Sprintf("http://127.0.0.1:%d", admin), url: fmt.Sprintf("http://127.0.0.1:%d", clear)}
	g.command = []string{program, "run", "-f", writeManifests(t, clear, secure, l.Addr().(*net.TCPAddr).Port), "--bind", "127.0.0.1",
		"--admin-address", strings.TrimPrefix(g.admin, "http://"), "--access-log", "off", "--shutdown-delay", "0s"}
	g.run(t)
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			text := g.output.String()
			t.Logf("%s", text[:min(len(text), 4000)])
		}
	})
	return g
}

// run starts the process and waits for it to be ready.
func (g *gateway) run(t *testing.T) {
	t.Helper()
	g.running = exec.Command(g.command[0], g.command[1:]...)
	g.running.Stdout, g.running.Stderr = &g.output, &g.output
	if err := g.running.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready", func() bool {
		r, err := http.Get(g.admin + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

func (g *gateway) kill() {
	g.running.Process.Kill()
	g.running.Wait()
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s after %s", what, patience)
		}
	}
}

// browser is a headless Chromium and all that it complained about.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	elsewhere  []string // addresses that it was sent to, other than the gateway's
}

func newBrowser(t *testing.T, own string) *browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Fatal("there is no Chromium; install Debian's package chromium-headless-shell")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, // root has none
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 800))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // starts the browser, which lives as long as this context
		t.Fatal(err)
	}
	err := chromedp.Listen(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, ev.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			b.complaints = append(b.complaints, fmt.Sprintf("console.%s", ev.Type))
		case *log.EventEntryAdded:
			b.complaints = append(b.complaints, ev.Entry.Text+" "+ev.Entry.URL)
		case *page.EventJavascriptDialogOpening:
			b.complaints = append(b.complaints, "a dialog: "+ev.Message)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(ev.Request.URL, own+"/") && !strings.HasPrefix(ev.Request.URL, "data:") {
				b.elsewhere = append(b.elsewhere, ev.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}), call(page.Enable, page.EnableParams{}))
	return b
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call is a command of the browser's protocol whose result does not matter.
func call[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// value runs an action and returns its value.
func value[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// evaluate returns the value of an expression.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	return value(b, chromedp.Evaluate[T](expression))
}

// do has an expression evaluated for what it does.
func (b *browser) do(expression string) { b.t.Helper(); evaluate[bool](b, expression+", true") }

// typeInto replaces the text of a field by keys, as people do.
func (b *browser) typeInto(id, text string) {
	b.t.Helper()
	b.do(fmt.Sprintf("document.getElementById(%q).select()", id))
	b.run(chromedp.SendKeys(chromedp.CSS("#"+id), text))
}

// until waits for an expression to be true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() bool { return evaluate[bool](b, "!!("+expression+")") })
}

// text is that of the element with an id.
func (b *browser) text(id string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.getElementById(%q).innerText", id))
}

// quiet checks that the browser had nothing to complain about, and was sent nowhere else.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser complains: %s", c)
	}
	for _, u := range b.elsewhere {
		b.t.Errorf("the page asks for %s", u)
	}
}

// prefer has the browser prefer a colour scheme.
func (b *browser) prefer(scheme string) {
	b.t.Helper()
	b.run(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// picture takes one for the documents, of what the window shows.
func (b *browser) picture(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	shot := fewColours(b.t, value(b, chromedp.CaptureScreenshot()))
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pictures, name+".png"), shot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// scrollTo brings an element to the upper edge of the window.
func (b *browser) scrollTo(id string) {
	b.t.Helper()
	b.do(fmt.Sprintf("document.getElementById(%q).scrollIntoView()", id))
}

// request sends requests to a route, one after the other, until the test ends.
func (g *gateway) request(t *testing.T, host, path string) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	done.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.url+path, nil)
			if err != nil {
				panic(err)
			}
			r.Host = host
			if resp, err := http.DefaultClient.Do(r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	})
}

// TestPage opens the page with thousands of routes, and does with it what people do.
func TestPage(t *testing.T) {
	g := start(t)
	b := newBrowser(t, g.admin)
	b.prefer("light")

	t.Run("opens", func(t *testing.T) {
		b.t = t
		b.run(chromedp.Navigate(g.admin + "/"))
		b.until("shown", "performance.getEntriesByName('moongate-shown').length")
		shown := evaluate[float64](b, "performance.getEntriesByName('moongate-shown')[0].startTime")
		loaded := evaluate[float64](b, "performance.getEntriesByType('navigation')[0].loadEventEnd")
		t.Logf("%d routes: %.0f ms after the load event the page is live, %.0f ms after it was asked for", routes, shown-loaded, shown)
		if after := shown - loaded; after >= openWithin {
			t.Errorf("the page shows %d routes %.0f ms after its load event, want less than %.0f", routes, after, openWithin)
		}
		if got, want := b.text("range"), "of 5,004"; !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got := evaluate[int](b, "document.querySelectorAll('#route-list tbody > tr').length"); got != 50 {
			t.Errorf("%d routes on a page, want 50", got)
		}
	})

	t.Run("tells problems", func(t *testing.T) {
		b.t = t
		got := b.text("problem-list")
		for _, want := range []string{"HTTPRoute shop/hostile", "Service shop/missing does not exist", "create it", "Secret shop/shop-tls", "expires on", "renew it"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not among the problems:\n%s", want, got)
			}
		}
	})

	t.Run("shows text of tenants as text", func(t *testing.T) {
		b.t = t
		if got := b.text("route-list"); !strings.Contains(got, hostile) {
			t.Errorf("the match of shop/hostile is not shown, though what has trouble comes first")
		}
		if n := evaluate[int](b, "document.querySelectorAll('img, iframe, object, [onerror]').length + document.scripts.length"); n != 1 {
			t.Errorf("%d elements were made of text", n-1)
		}
	})

	g.request(t, "shop.example.com", "/cart")
	g.request(t, "route-042.team-07.example.com", "/")

	t.Run("follows numbers", func(t *testing.T) {
		b.t = t
		b.typeInto("q", "shop.example.com")
		b.until("filtered", "document.getElementById('range').innerText.startsWith('1–3 of 3 that fit')")
		cell := func(what string) string {
			return fmt.Sprintf(`document.querySelector("[data-of='r:HTTPRoute/shop/cart'][data-what=%s]").innerText`, what)
		}
		b.until("a rate shown", "parseFloat("+cell("rate")+") > 0")
		b.until("a latency shown", cell("p99")+".endsWith(' ms')")
		before := evaluate[string](b, cell("requests"))
		b.until("counted on", cell("requests")+" !== "+fmt.Sprintf("%q", before))
		b.until("the sum of all shown", "parseFloat(document.getElementById('t-rate').innerText) > 0")
		if got := evaluate[string](b, cell("errorRate")); got != "0" {
			t.Errorf("5xx/s is %s", got)
		}
		if got := b.text("route-list"); !strings.Contains(got, "Service/shop/app/80") || !strings.Contains(got, "2 of 2 healthy") {
			t.Errorf("backend and endpoints are not shown:\n%s", got)
		}
		// Details stay open, and keep the focus, while numbers change.
		b.run(chromedp.Click(chromedp.CSS("#route-list tbody tr:first-child details summary")), chromedp.Focus(chromedp.CSS("#route-list tbody tr:first-child details summary")))
		again := evaluate[string](b, cell("requests"))
		b.until("counted on", cell("requests")+" !== "+fmt.Sprintf("%q", again))
		if !evaluate[bool](b, "document.querySelector('#route-list details').open && document.activeElement.tagName === 'SUMMARY'") {
			t.Error("details close, or lose the focus, while numbers change")
		}
		if got := b.text("route-list"); !strings.Contains(got, "127.0.0.2:") {
			t.Errorf("the endpoints are not shown:\n%s", got)
		}
		b.do("scrollTo(0, 0)")
		b.picture("dashboard")
		b.scrollTo("routes")
		b.picture("dashboard-routes")
	})

	t.Run("says how old it is", func(t *testing.T) {
		b.t = t
		const seconds = "parseInt(document.getElementById('age').innerText.match(/, (\\d+) s ago$/)[1])"
		b.until("live", seconds+" <= 1")
		b.run(chromedp.Click(chromedp.CSS("#live")))
		b.until("older", seconds+" >= 4")
		b.run(chromedp.Click(chromedp.CSS("#live")))
		b.until("live", seconds+" <= 1")
	})

	t.Run("shows messages of good conditions by keys", func(t *testing.T) {
		b.t = t
		const summary = "[data-key^='conditions Gateway shop/edge']"
		b.run(chromedp.Focus(chromedp.CSS(summary)), chromedp.KeyEvent(kb.Enter))
		b.until("open", "document.activeElement.parentElement.open")
		if got := b.text("gateway-list"); !strings.Contains(got, "Programmed Programmed") {
			t.Errorf("the reason is not shown:\n%s", got)
		}
		b.run(chromedp.KeyEvent(kb.Enter))
		b.until("closed", "!document.activeElement.parentElement.open")
	})

	t.Run("filters", func(t *testing.T) {
		b.t = t
		b.typeInto("q", "team-07/route-042")
		b.until("filtered", "document.getElementById('range').innerText === '1–1 of 1 that fit, of 5,004'")
		b.until("announced", "document.getElementById('said').innerText === '1 of 5,004 routes'")
		if got := evaluate[string](b, "location.search"); got != "?q=team-07%2Froute-042" {
			t.Errorf("the address of the page is %s", got)
		}
		b.typeInto("q", "team-07/")
		b.until("filtered", "document.getElementById('range').innerText === '1–50 of 100 that fit, of 5,004'")
		b.run(chromedp.Click(chromedp.CSS("#next")))
		b.until("turned", "document.getElementById('range').innerText === '51–100 of 100 that fit, of 5,004'")
		b.run(chromedp.Click(chromedp.CSS("#trouble")))
		b.until("nothing", "document.getElementById('route-list').innerText.includes('There is no route that fits.')")
		b.run(chromedp.Click(chromedp.CSS("#trouble")))
		b.typeInto("q", "nothing like it")
		b.until("nothing", "document.getElementById('gateway-list').innerText.includes('There is no Gateway that fits.')")
	})

	t.Run("pages with a limit", func(t *testing.T) {
		b.t = t
		b.run(chromedp.Navigate(g.admin + "/?q=team-07%2F&limit=30"))
		for _, step := range []struct{ click, shown, address string }{
			{"", "1–30 of 100 that fit, of 5,004", "?q=team-07%2F&limit=30"},
			{"next", "31–60 of 100 that fit, of 5,004", "?q=team-07%2F&offset=30&limit=30"},
			{"next", "61–90 of 100 that fit, of 5,004", "?q=team-07%2F&offset=60&limit=30"},
			{"next", "91–100 of 100 that fit, of 5,004", "?q=team-07%2F&offset=90&limit=30"},
			{"previous", "61–90 of 100 that fit, of 5,004", "?q=team-07%2F&offset=60&limit=30"},
		} {
			if step.click != "" {
				b.run(chromedp.Click(chromedp.CSS("#" + step.click)))
			}
			b.until(step.shown, fmt.Sprintf("document.getElementById('range').innerText === %q && location.search === %q", step.shown, step.address))
		}
		if got := evaluate[int](b, "document.querySelectorAll('#route-list tbody > tr').length"); got != 30 {
			t.Errorf("%d routes on a page, want 30", got)
		}
		b.run(chromedp.Navigate(g.admin + "/"))
		b.until("shown", "performance.getEntriesByName('moongate-shown').length")
	})

	t.Run("explains", func(t *testing.T) {
		b.t = t
		port := g.url[strings.LastIndexByte(g.url, ':'):]
		b.typeInto("url", "http://route-042.team-07.example.com"+port+"/x/../y")
		b.typeInto("headers", "X-Color: green")
		b.run(chromedp.Click(chromedp.CSS("#ask button")))
		b.until("answered", "document.getElementById('answer').innerText.includes('answer')")
		got := b.text("answer")
		for _, want := range []string{"path /y", "shop/edge/http", "HTTPRoute team-07/route-042 rules[0]", "100% to Service team-07/app port 80", "127.0.0.1:"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in the answer:\n%s", want, got)
			}
		}
		b.scrollTo("explain")
		b.picture("dashboard-explain")
		b.typeInto("url", "http://nobody.example.com"+port+"/"+kb.Enter)
		b.until("answered", "document.getElementById('answer').innerText.includes('404 route_not_found')")
		b.typeInto("url", "nonsense"+kb.Enter)
		b.until("refused", "document.getElementById('answer').innerText.includes('nonsense')")
	})

	// That the browser says of a request which was answered with 400 is no complaint of the page's.
	b.forgive("the server responded with a status of 400")

	t.Run("shows certificates and policies", func(t *testing.T) {
		b.t = t
		b.typeInto("q", "shop")
		b.until("filtered", "document.getElementById('others').hidden") // what is not of the shop goes, so that nothing changes its width below
		b.until("found", "!document.getElementById('policies').hidden && !document.getElementById('certificates').hidden")
		b.until("read", "document.getElementById('certificate-list').innerText.includes('19 days')")
		if got := b.text("certificate-list"); !strings.Contains(got, "shop.example.com") || !strings.Contains(got, "shop/edge/https") {
			t.Errorf("certificates:\n%s", got)
		}
		if got := b.text("policy-list"); !strings.Contains(got, "HTTPRoute shop/cart") || !strings.Contains(got, "BackendTrafficPolicy shop/all") || !strings.Contains(got, "spec.retry") {
			t.Errorf("policies:\n%s", got)
		}
		b.scrollTo("certificates")
		b.picture("dashboard-policies")
	})

	t.Run("is accessible", func(t *testing.T) {
		b.t = t
		b.accessible()
	})

	t.Run("starts anew with a gateway that was restarted", func(t *testing.T) {
		b.t = t
		b.typeInto("q", "shop/cart")
		b.until("a rate shown", "parseFloat(document.getElementById('t-rate').innerText) > 0")
		before := evaluate[int](b, "Number(document.getElementById('t-total').innerText.replaceAll(',', ''))")
		b.do(`window.negative = [], new MutationObserver(() => { for (const e of document.querySelectorAll("[data-of], .tiles dd")) if (e.textContent.startsWith("-")) window.negative.push(e.textContent) })
			.observe(document.body, { subtree: true, childList: true, characterData: true })`)
		g.kill()
		b.until("said to be old", "document.getElementById('failed').innerText.startsWith('Nothing new is shown since')")
		g.run(t)
		b.until("counted anew", fmt.Sprintf("Number(document.getElementById('t-total').innerText.replaceAll(',', '')) < %d", before))
		b.until("a rate shown", "parseFloat(document.getElementById('t-rate').innerText) > 0 && document.getElementById('failed').hidden")
		if negative := evaluate[[]string](b, "window.negative"); len(negative) > 0 {
			t.Errorf("figures below zero: %q", negative)
		}
	})
	b.forgive("net::ERR_CONNECTION_REFUSED")
	b.forgive("net::ERR_CONNECTION_RESET")
	b.forgive("net::ERR_EMPTY_RESPONSE")

	t.Run("works without its script", func(t *testing.T) {
		b.t = t
		b.run(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}), chromedp.Navigate(g.admin+"/?q=team-07/"))
		if got := b.text("range"); got != "1–50 of 100 that fit, of 5004" {
			t.Errorf("%q", got)
		}
		b.run(chromedp.Click(chromedp.CSS("#next")), chromedp.WaitVisible(chromedp.CSS("#previous")))
		b.until("loaded", "document.readyState === 'complete'") // the fragment of the address takes the focus until then
		if got := b.text("range"); got != "51–100 of 100 that fit, of 5004" {
			t.Errorf("%q", got)
		}
		b.run(chromedp.SendKeys(chromedp.CSS("#url"), "http://route-042.team-07.example.com"+g.url[strings.LastIndexByte(g.url, ':'):]+"/"+kb.Enter))
		eventually(t, "answered", func() bool {
			return strings.Contains(evaluate[string](b, "document.body.innerText"), "HTTPRoute team-07/route-042 rules[0]")
		})
	})

	b.t = t
	b.quiet()
}

// TestPageRequestTimeout opens the page in front of a server that stops answering.
func TestPageRequestTimeout(t *testing.T) {
	g := start(t)
	target, err := url.Parse(g.admin)
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool
	forward := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done() // until the page gives up
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	b := newBrowser(t, front.URL)
	b.run(chromedp.Navigate(front.URL + "/"))
	b.until("shown", "performance.getEntriesByName('moongate-shown').length")
	silent.Store(true)
	b.until("given up", "document.getElementById('failed').innerText.includes('no answer within 10 s')")
	if got := b.text("failed"); !strings.HasPrefix(got, "Nothing new is shown since") {
		t.Errorf("%q", got)
	}
	silent.Store(false)
	b.until("live again", "document.getElementById('failed').hidden")
	b.quiet()
}

// forgive forgets complaints with a text.
func (b *browser) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, c := range b.complaints {
		if !strings.Contains(c, text) {
			left = append(left, c)
		}
	}
	b.complaints = left
}
