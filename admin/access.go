package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// gate lets through who may change something.
type gate struct {
	token func() (string, error) // nil: everybody may
}

// Access tells who may change something, and whether that is who asks: the answer of
// /v1/access.
type Access struct {
	Token      bool `json:"token"`      // a token is asked for
	Authorised bool `json:"authorised"` // it was shown
}

func (g gate) serveAccess(w http.ResponseWriter, r *http.Request) {
	a := Access{Token: g.token != nil}
	if a.Token {
		want, err := g.token()
		a.Authorised = err == nil && shows(r, want)
	}
	answer(w, http.StatusOK, a)
}

// guard puts the gate before a handler. A token that cannot be read lets nobody through.
func (g gate) guard(next http.HandlerFunc) http.HandlerFunc {
	if g.token == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		want, err := g.token()
		switch {
		case err != nil:
			fail(w, http.StatusServiceUnavailable, err.Error())
		case !shows(r, want):
			w.Header().Set("WWW-Authenticate", `Bearer realm="wardrop"`)
			fail(w, http.StatusUnauthorized, "this changes something, which needs the token of control.admin_token_file: --token-file FILE, or WARDROP_TOKEN")
		default:
			next(w, r)
		}
	}
}

// shows tells whether a request has the token, in a time that does not depend on it.
func shows(r *http.Request, want string) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok && want != ""
}
