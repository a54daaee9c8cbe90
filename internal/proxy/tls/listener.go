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

// HTTP are the protocols of requests, as they are offered by ALPN: the preferred one first.
var HTTP = []string{"h2", "http/1.1"}

// Listener chooses among the certificates of one listener. It is immutable.
type Listener struct {
	key     string
	certs   []*Certificate
	secrets [][]byte
	clients *Clients
	options *config.TLSOptions
	// protocols are offered by ALPN where options has none.
	protocols []string
	// configs show the certificate of the same position, and nothing else.
	configs []*tls.Config
	*index
}

// index finds certificates by server name. Listeners that differ in their secrets alone share it.
type index struct {
	// byName are positions by name, a wildcard without its "*", one of each algorithm: in order, but
	// behind those with a name itself the ones with the wildcard for it. It is nil where there is one certificate.
	byName map[string][]int32
	// unnamed are the first of each algorithm, for names that no certificate has.
	unnamed []int32
}

// Update is the listener of this key with these certificates, in the order of certificateRefs, of which there must
// be one, and with the Gateway's secrets (config.TicketKeys.keys), without which no session is resumed. clients is what is demanded of
// the clients' certificates, nil where they are not asked for any, and options restricts handshakes, nil for the defaults; protocols are offered by ALPN where it has none, nil for
// nothing. What l, which may be nil, was made for already is used again: it is l itself where nothing differs.
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
		alone := []int32{int32(i)} // most names have one certificate: they share its list
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

// withAlgorithm is the list with those of more whose algorithm is not in it. It modifies neither.
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

// algorithm tells public keys apart as far as a client may know one and not the other.
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
		// Small first records cost the first responses of a connection more writes than they spare
		// their clients time, see docs/performance-learned.md.
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

// config is what a client's handshake goes on with; name is its server name in lower case. It costs
// the same whatever the number of certificates and names.
func (l *Listener) config(hello *tls.ClientHelloInfo, name string) *tls.Config {
	return l.configs[l.choose(hello, name)]
}

// Presented returns the certificate that a client is shown for a server name in lower case, "" where it sends none. A client that
// does not know the certificate's algorithm may be shown another one.
func (l *Listener) Presented(name string) *Certificate {
	return l.certs[l.choose(&tls.ClientHelloInfo{
		SupportedVersions: []uint16{tls.VersionTLS13},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256, tls.ECDSAWithP384AndSHA384, tls.ECDSAWithP521AndSHA512,
			tls.PSSWithSHA256, tls.PSSWithSHA384, tls.PSSWithSHA512, tls.Ed25519},
	}, name)]
}

// choose returns the position of the certificate that a client is shown.
func (l *Listener) choose(hello *tls.ClientHelloInfo, name string) int32 {
	if len(l.configs) == 1 {
		return 0
	}
	list := l.byName[name]
	if dot := strings.IndexByte(name, '.'); len(list) == 0 && dot > 0 {
		list = l.byName[name[dot:]] // RFC 9525 section 6.3: a wildcard stands for exactly one label
	}
	if len(list) == 0 {
		list = l.unnamed
	}
	return l.verifiable(hello, list)
}

// verifiable is the first certificate whose algorithm the client knows (an ECDSA and an RSA certificate
// may stand side by side), or the first of all. The order of certificateRefs decides where it knows several.
func (l *Listener) verifiable(hello *tls.ClientHelloInfo, list []int32) int32 {
	if len(list) == 1 {
		return list[0]
	}
	nameless := *hello // the name is found, or no certificate has it and the client may not mind
	nameless.ServerName = ""
	if suites := l.options.GetCipherSuites(); len(suites) > 0 { // without which TLS 1.2 would not go on
		nameless.CipherSuites = slices.DeleteFunc(slices.Clone(hello.CipherSuites), func(id uint16) bool { return !slices.Contains(suites, uint32(id)) })
	}
	for _, i := range list {
		if nameless.SupportsCertificate(&l.certs[i].pair[0]) == nil {
			return i
		}
	}
	return list[0]
}
