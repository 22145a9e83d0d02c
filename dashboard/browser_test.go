package dashboard_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the screenshots of the docs anew")

// patience bounds the wait for what takes a moment.
const patience = 40 * time.Second

// chromium is one browser for all tests, which have a profile of their own each.
var chromium struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

func closeBrowser() {
	if chromium.end != nil {
		chromium.end()
	}
}

func findChromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func startBrowser(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true))
	ctx, endProcess := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	chromium.ctx = ctx
	chromium.end = func() {
		_ = chromedp.Cancel(ctx) // waits for the browser
		end()
		endProcess()
	}
	chromium.err = chromedp.Do(ctx)
}

// tab is a page in the browser, with what it asked for and what went wrong.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	asked    []string // addresses
	problems []string
}

// open opens a tab of a width and height in pixels, in dark mode or not. Without Chromium the
// test is skipped.
func open(t testing.TB, width, height int, dark bool) *tab {
	t.Helper()
	path := findChromium()
	if path == "" {
		t.Skip("no Chromium is installed here: the page is not tried")
	}
	chromium.once.Do(func() { startBrowser(path) })
	require.NoError(t, chromium.err)
	ctx, end := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(end)
	require.NoError(t, chromedp.Listen(ctx, b.heard))
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(int64(width), int64(height)))
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	return b
}

// call sends the browser a command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Call(ctx, command, params)
	require.NoError(b.t, err)
	return out
}

func (b *tab) heard(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" {
			b.problems = append(b.problems, string(e.Args[0].Value))
		}
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// visit opens an address and waits until something is there.
func (b *tab) visit(url, selector string) {
	b.t.Helper()
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
	b.until("document.querySelector(" + quote(selector) + ")")
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	err := chromedp.Do(ctx, chromedp.Poll[chromedp.Void]("Boolean("+expression+")", chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		said, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
		b.t.Fatalf("%v: waiting for %s; the page says:\n%s", err, expression, said)
	}
}

// eval gives the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err)
	return out
}

func (b *tab) says(text string) {
	b.t.Helper()
	b.until("document.body.innerText.includes(" + quote(text) + ")")
}

func quote(s string) string { return "`" + strings.ReplaceAll(s, "`", "\\`") + "`" }

// healthy holds a tab to having asked nobody but one origin, without an error.
func (b *tab) healthy(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.problems)
	require.NotEmpty(b.t, b.asked)
	for _, url := range b.asked {
		if url != "about:blank" && !strings.HasPrefix(url, "data:") {
			require.True(b.t, strings.HasPrefix(url, origin), "it asked %s", url)
		}
	}
}

// past waits for a picture to have something to show: until the page is open for so many seconds.
func (b *tab) past(seconds int) {
	b.t.Helper()
	if *update {
		b.until(fmt.Sprintf("performance.now() > %d", 1000*seconds))
	}
}

// shoot writes a screenshot of the docs, if asked to: a palette keeps it small.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if !*update {
		return
	}
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	img, err := png.Decode(bytes.NewReader(shot.Data))
	require.NoError(b.t, err)
	var out bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, paletted(img)))
	require.Less(b.t, out.Len(), 150_000, name)
	require.NoError(b.t, os.MkdirAll("../docs/images", 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join("../docs/images", name+".png"), out.Bytes(), 0o644))
}

// paletted keeps the 256 colours that there is most of; each other becomes the nearest of them.
func paletted(img image.Image) image.Image {
	counts := map[color.RGBA]int{}
	bounds := img.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	out := image.NewPaletted(bounds, palette(counts))
	draw.Draw(out, bounds, img, bounds.Min, draw.Src)
	return out
}

func palette(counts map[color.RGBA]int) color.Palette {
	var out color.Palette
	for len(out) < 256 && len(counts) > 0 {
		var best color.RGBA
		most := 0
		for c, n := range counts {
			if n > most {
				best, most = c, n
			}
		}
		out = append(out, best)
		for c, n := range counts { // what is nearly the same is the same
			if d := distance(c, best); d < 90 {
				delete(counts, c)
			} else {
				counts[c] = n
			}
		}
	}
	return out
}

func distance(a, b color.RGBA) int {
	r, g, u := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
	return r*r + g*g + u*u
}
