package proxy

import (
	cryptotls "crypto/tls"
	"fmt"
	"maps"
	"time"
	"weak"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// upsertCertificate adds a certificate, or replaces the one with its key. The listeners that use it are updated with
// the sockets.
func (a *applying) upsertCertificate(c *config.Certificate) error {
	cert, err := tls.Parse(c)
	if err != nil {
		return err
	}
	a.p.state.certificates[c.Key] = cert
	a.relisten = true
	a.p.metrics.SetCertificate(c.Key, cert.NotAfter)
	if why := cert.Unfit(time.Now()); why != "" {
		a.p.logger.Warn("a certificate is shown that clients will not trust", "certificate", c.Key, "why", why, "remedy", "renew it in its Secret")
	}
	return nil
}

// chooseIdentity returns the client certificate of a listener's Gateway for backends, nil if it has none. A missing
// certificate must not have the effect of none.
func (p *Proxy) chooseIdentity(c *config.Listener) *upstream.Identity {
	if c.Identity == nil {
		return nil
	}
	cert := p.state.certificates[c.Identity.Certificate]
	if cert == nil {
		return upstream.Unusable
	}
	return p.upstreams.Identity(c.Gateway, cert.Key, cert.Pair())
}

// clientCertificate returns the client certificate with a key for backends, nil if it does not exist. p.mu must be
// held, as it is while the Set is updated.
func (p *Proxy) clientCertificate(key string) *cryptotls.Certificate {
	if cert := p.state.certificates[key]; cert != nil {
		return cert.Pair()
	}
	return nil
}

// chooseTLS updates ls.tls and ls.clients. ls.tls is nil for a listener without a certificate; every handshake with it
// fails.
func (s *state) chooseTLS(ls *listenerState, mode snapshot.Mode) (err error) {
	c := ls.config
	var certs []*tls.Certificate
	for _, key := range c.ServerCertificates() {
		if cert := s.certificates[key]; cert != nil {
			certs = append(certs, cert)
		}
	}
	if ls.clients, err = s.clientsOf(c.ClientValidation); err != nil {
		ls.tls = nil
		return err
	}
	if len(certs) > 0 {
		var protocols []string // only the backend knows the protocol after the handshake
		if mode == snapshot.HTTPS {
			protocols = tls.HTTP
		}
		ls.tls = ls.tls.Update(c.Key, certs, s.ticketKeys[c.Gateway], ls.clients, c.TlsOptions, protocols)
		return nil
	}
	ls.tls = nil
	if len(c.ServerCertificates()) == 0 {
		return nil // this is intended
	}
	return fmt.Errorf("none of the certificates %q exists", c.ServerCertificates())
}

// warnOfLists logs the stale revocation lists because of which clients are refused.
func (p *Proxy) warnOfLists(ls *listenerState) {
	for _, why := range ls.clients.Stale(time.Now()) {
		p.logger.Warn("no client of the authority is served", "listener", ls.config.Key, "why", why, "remedy", "bring ca.crl of the ConfigMap up to date")
	}
}

// clientsOf returns the validation of client certificates, nil if there is none. Listeners with the same validation
// share it.
func (s *state) clientsOf(c *config.ClientValidation) (*tls.Clients, error) {
	if c == nil {
		return nil, nil
	}
	digest := tls.DigestOf(c)
	if known := s.clients[digest].Value(); known != nil {
		return known, nil
	}
	clients, err := tls.NewClients(c, func(key string) *config.Authorities { return s.authorities[key] })
	if err == nil {
		maps.DeleteFunc(s.clients, func(_ tls.ClientsDigest, unused weak.Pointer[tls.Clients]) bool { return unused.Value() == nil })
		s.clients[digest] = weak.Make(clients)
	}
	return clients, err
}
