package discover

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// maxEngines bounds what one source may find: more is a mistake, and taking a part
// of it would be another.
const maxEngines = 10_000

// Found is one look of a source at its engines.
type Found struct {
	// Engines are all of them: what is not here is gone. Only URL is required; what is
	// empty the source's configuration says.
	Engines []config.Engine
	// Refused says of each entry that cannot be an engine what is wrong with it.
	Refused []string
	// Err is why the look failed. Engines says nothing then.
	Err error
}

// Source finds engines. Run reports what there is, whole each time, until ctx ends,
// and returns then; it may block in report. It returns early only with what makes
// it useless for good.
type Source interface {
	Run(ctx context.Context, report func(Found)) error
}

// Opener makes the source that a configuration describes.
type Opener func(s config.Source, log *slog.Logger) (Source, error)

// Open is the Opener of the sources that need no client of their own: file, dns and
// http.
func Open(s config.Source, _ *slog.Logger) (Source, error) {
	switch s.Of() {
	case "file":
		return &file{s}, nil
	case "dns":
		return newDNS(s), nil
	case "http":
		return newHTTPSD(s), nil
	}
	return nil, fmt.Errorf("source %q: %s is not served here", s.Name, s.Of())
}

// every looks at once and then at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, look func()) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		look()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// Target gives the base URL of a host and port, or of a URL as it is. The error
// says what is wrong with it.
func Target(scheme, target string) (string, error) {
	if !strings.Contains(target, "://") {
		host, port, err := net.SplitHostPort(target)
		if n, e := strconv.Atoi(port); err != nil || host == "" || e != nil || n < 1 || n > 65535 || strings.ContainsAny(host, "/?#@ %") {
			return "", fmt.Errorf("%.80q is not host:port", target)
		}
		target = scheme + "://" + target
	}
	if _, err := address(target); err != nil {
		return "", err
	}
	return target, nil
}

// address is what tells engines apart: host:port, or the path of a socket. The
// scheme is no part of it: one port speaks one.
func address(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%.80q is not a base URL", base)
	}
	if u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/") {
		return "unix:" + u.Path, nil
	}
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "":
		return "", fmt.Errorf("%.80q is not a base URL", base)
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(host, port), nil
}
