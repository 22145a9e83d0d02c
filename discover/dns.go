package discover

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// dnsTimeout bounds one look, with all its retries.
const dnsTimeout = 10 * time.Second

// dns is the addresses of a name.
type dns struct {
	config.Source
	resolver *net.Resolver
}

func newDNS(s config.Source) *dns {
	d := &dns{Source: s, resolver: &net.Resolver{PreferGo: true}}
	if s.DNS.Resolver != "" {
		d.resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.DNS.Resolver)
		}
	}
	return d
}

// Run implements Source.
func (d *dns) Run(ctx context.Context, report func(Found)) error {
	return every(ctx, time.Duration(d.Interval), func() {
		limit, cancel := context.WithTimeout(ctx, dnsTimeout)
		defer cancel()
		if found := d.look(limit); ctx.Err() == nil {
			report(found)
		}
	})
}

func (d *dns) look(ctx context.Context) Found {
	ask := d.addresses
	if d.DNS.Records == "srv" {
		ask = d.services
	}
	targets, err := ask(ctx)
	var failure *net.DNSError
	switch {
	case errors.As(err, &failure) && failure.IsNotFound && !failure.IsTimeout && !failure.IsTemporary:
		// A name that is not there has no engines; whether that can be is the
		// keeper's business.
	case err != nil && len(targets) == 0:
		return Found{Err: err}
	}
	var found Found
	for _, t := range targets {
		if base, err := Target(d.Scheme, t); err != nil {
			found.Refused = append(found.Refused, err.Error())
		} else {
			found.Engines = append(found.Engines, config.Engine{URL: base})
		}
	}
	return found
}

func (d *dns) addresses(ctx context.Context) ([]string, error) {
	network := map[string]string{"a": "ip4", "aaaa": "ip6"}[d.DNS.Records]
	ips, err := d.resolver.LookupNetIP(ctx, network, d.DNS.Name)
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(d.DNS.Port)))
	}
	return out, err
}

// services names hosts, not their addresses: certificates are made out to names.
func (d *dns) services(ctx context.Context) ([]string, error) {
	_, records, err := d.resolver.LookupSRV(ctx, "", "", d.DNS.Name)
	var out []string
	for _, r := range records {
		if host := strings.TrimSuffix(r.Target, "."); cmp.Or(host, ".") != "." { // "." says that there is none
			out = append(out, net.JoinHostPort(host, strconv.Itoa(int(r.Port))))
		}
	}
	return out, err
}
