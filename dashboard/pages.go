package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"sync"
)

//go:embed static
var static embed.FS

// page is one file as it is sent.
type page struct {
	plain, packed []byte
	kind, tag     string
}

// policy of content: nothing is loaded from elsewhere, nothing runs that is not a file of ours, and
// nobody may frame the page.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// files are packed once, when the first of them is asked for.
var files = sync.OnceValue(func() map[string]page {
	out := map[string]page{}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		_, _ = z.Write(data)
		_ = z.Close()
		sum := sha256.Sum256(data)
		out[name[len("static/"):]] = page{data, packed.Bytes(), kindOf(name), `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return out
})

// kindOf does not ask the machine, whose answers differ.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".html":
		return "text/html; charset=utf-8"
	}
	return mime.TypeByExtension(path.Ext(name))
}

// pages serves the embedded files.
func pages() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path
		if name == "" {
			name = "index.html"
		}
		p, ok := files()[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", p.kind)
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // it is asked for again, and not sent again
		h.Set("Vary", "Accept-Encoding")
		h.Set("ETag", p.tag)
		if r.Header.Get("If-None-Match") == p.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		data := p.plain
		if packs(r) {
			h.Set("Content-Encoding", "gzip")
			data = p.packed
		}
		_, _ = w.Write(data)
	})
}
