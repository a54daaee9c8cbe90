package tls

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

const minVersion = tls.VersionTLS12

// HTTP are the protocols offered by ALPN for HTTP, the preferred one first.
var HTTP = []string{"h2", "http/1.1"}

// Listener chooses among the certificates of one listener. It is immutable.
type Listener struct {
	key     string
	certs   []*Certificate
	secrets [][]byte
	clients *Clients
	options *config.TLSOptions
	// protocols are offered by ALPN if options has none.
	protocols []string
	// configs use only the certificate with the same index.
	configs []*tls.Config
	*index
}

// index finds certificates by server name. Listeners that only differ in their secrets share it.
type index struct {
	// byName are indexes of certificates by name, a wildcard without its "*", one for each algorithm: in order, but
	// those with the name itself before those with the wildcard for it. It is nil if there is only one certificate.
	byName map[string][]int32
	// unnamed are the first ones of each algorithm, for names that no certificate has.
	unnamed []int32
}

// Update returns the listener with this key and these certificates, in the order of certificateRefs, of which there
// must be at least one, and with the Gateway's secrets (config.TicketKeys.keys), without which no session is resumed.
// clients is the validation of client certificates, nil if none are requested. options restricts handshakes, nil for
// the defaults. protocols are offered by ALPN if options has none; nil for none. It reuses parts of l, which may be
// nil, and returns l itself if nothing differs.
func (l *Listener) Update(key string, certs []*Certificate, secrets [][]byte, clients *Clients, options *config.TLSOptions, protocols []string) *Listener {
	if l == nil || l.key != key || l.clients != clients || !proto.Equal(l.options, options) || !slices.Equal(l.protocols, protocols) {
		l = &Listener{}
	}
	sameCerts, sameSecrets := slices.Equal(l.certs, certs), slices.EqualFunc(l.secrets, secrets, bytes.Equal)
	if sameCerts && sameSecrets {
		return l
	}
	next := &Listener{key: key, certs: slices.Clone(certs), secrets: secrets, clients: clients, options: options, protocols: protocols, index: l.index, configs: make([]*tls.Config, len(certs))}
	if !sameCerts {
		next.index = newIndex(certs)
	}
	for i, c := range certs {
		if at := slices.Index(l.certs, c); at >= 0 && sameSecrets {
			next.configs[i] = l.configs[at]
		} else {
			next.configs[i] = newConfig(c, ticketKeys(secrets, key, c, clients), clients, options, protocols)
		}
	}
	return next
}

func newIndex(certs []*Certificate) *index {
	in := &index{}
	for i, c := range certs {
		in.unnamed = withAlgorithm(certs, in.unnamed, []int32{int32(i)})
		if len(certs) == 1 {
			return in
		}
		if in.byName == nil {
			in.byName = make(map[string][]int32)
		}
		alone := []int32{int32(i)} // most names have one certificate and share its list
		for _, name := range c.Names {
			name = strings.TrimPrefix(name, "*")
			in.byName[name] = withAlgorithm(certs, in.byName[name], alone)
		}
	}
	for name, list := range in.byName {
		if dot := strings.IndexByte(name, '.'); dot > 0 {
			in.byName[name] = withAlgorithm(certs, list, in.byName[name[dot:]])
		}
	}
	return in
}

// withAlgorithm returns the list with those of more added whose algorithm is not in it. It modifies neither.
func withAlgorithm(certs []*Certificate, list, more []int32) []int32 {
	if len(list) == 0 {
		return more
	}
	for _, i := range more {
		same := func(j int32) bool { return certs[i].algorithm == certs[j].algorithm }
		if !slices.ContainsFunc(list, same) {
			list = append(slices.Clip(list), i)
		}
	}
	return list
}

// algorithm returns the kind of a public key, as far as a client may support one kind and not another.
func algorithm(key crypto.PublicKey) string {
	if k, ok := key.(*ecdsa.PublicKey); ok {
		return k.Curve.Params().Name
	}
	return fmt.Sprintf("%T", key)
}

func newConfig(c *Certificate, tickets [][32]byte, clients *Clients, options *config.TLSOptions, protocols []string) *tls.Config {
	cfg := &tls.Config{
		MinVersion:   minVersion,
		NextProtos:   protocols,
		Certificates: c.pair,
		// Small first records cost more writes for the first responses of a connection than they save time for the
		// clients, see docs/performance-learned.md.
		DynamicRecordSizingDisabled: true,
		SessionTicketsDisabled:      len(tickets) == 0,
	}
	if len(tickets) > 0 {
		cfg.SetSessionTicketKeys(tickets)
	}
	if clients != nil {
		clients.demand(cfg)
	}
	restrict(cfg, options)
	return cfg
}

func restrict(cfg *tls.Config, o *config.TLSOptions) {
	cfg.MinVersion = max(cfg.MinVersion, uint16(o.GetMinVersion()))
	for _, id := range o.GetCipherSuites() {
		cfg.CipherSuites = append(cfg.CipherSuites, uint16(id))
	}
	if names := o.GetAlpn(); len(names) > 0 {
		cfg.NextProtos = names
	}
}

// config returns the configuration for a client's handshake. name is its server name in lower case. The cost does not
// depend on the number of certificates and names.
func (l *Listener) config(hello *tls.ClientHelloInfo, name string) *tls.Config {
	return l.configs[l.choose(hello, name)]
}

// Presented returns the certificate for a server name in lower case, "" if the client sends none. A client that does
// not support the certificate's algorithm may get another one.
func (l *Listener) Presented(name string) *Certificate {
	return l.certs[l.choose(&tls.ClientHelloInfo{
		SupportedVersions: []uint16{tls.VersionTLS13},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512,
			tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512, tls.Ed25519},
	}, name)]
}

// choose returns the index of the certificate for a client.
func (l *Listener) choose(hello *tls.ClientHelloInfo, name string) int32 {
	if len(l.configs) == 1 {
		return 0
	}
	list := l.byName[name]
	if dot := strings.IndexByte(name, '.'); len(list) == 0 && dot > 0 {
		list = l.byName[name[dot:]] // RFC 9525 section 6.3: a wildcard matches exactly one label
	}
	if len(list) == 0 {
		list = l.unnamed
	}
	return l.verifiable(hello, list)
}

// verifiable returns the first certificate whose algorithm the client supports (there may be an ECDSA and an RSA
// certificate), or the first of all. The order of certificateRefs decides if it supports several.
func (l *Listener) verifiable(hello *tls.ClientHelloInfo, list []int32) int32 {
	if len(list) == 1 {
		return list[0]
	}
	nameless := *hello // the name is found, or no certificate has it and the client may accept that
	nameless.ServerName = ""
	if suites := l.options.GetCipherSuites(); len(suites) > 0 { // without a common suite TLS 1.2 would fail
		nameless.CipherSuites = slices.DeleteFunc(slices.Clone(hello.CipherSuites), func(id uint16) bool { return !slices.Contains(suites, uint32(id)) })
	}
	for _, i := range list {
		if nameless.SupportsCertificate(&l.certs[i].pair[0]) == nil {
			return i
		}
	}
	return list[0]
}
