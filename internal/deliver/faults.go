package deliver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/translate"
)

// faults are the facts of this host that the translator was told: listeners and
// addresses that cannot be bound.
type faults struct {
	bind      []netip.Addr
	log       *slog.Logger
	listeners map[string]*config.Listener // by key, as the proxy tried it
	addresses map[gatewayAddress]bool
	told      map[string]string // what was logged of whom, so that it is logged once
}

// gatewayAddress is an entry of spec.addresses.
type gatewayAddress struct {
	gateway string // config.Listener.gateway
	address string
}

func newFaults(bind []netip.Addr, log *slog.Logger) faults {
	return faults{bind, log, map[string]*config.Listener{}, map[gatewayAddress]bool{}, map[string]string{}}
}

// clear takes all facts back, because those they are about may have changed.
func (f *faults) clear(t *translate.Translator) {
	for key := range f.listeners {
		f.clearListener(t, key)
	}
	for a := range f.addresses {
		f.clearAddress(t, a)
	}
}

// clearUsable takes back the facts that no longer hold and tells whether there were any.
func (f *faults) clearUsable(t *translate.Translator) bool {
	some := false
	for a := range f.addresses {
		if bindable(a.address, 0) {
			f.clearAddress(t, a)
			delete(f.told, "Gateway "+a.gateway)
			some = true
		}
	}
	for key, l := range f.listeners {
		if f.listenerBindable(l) {
			f.clearListener(t, key)
			delete(f.told, "listener "+key)
			some = true
		}
	}
	return some
}

func (f *faults) clearListener(t *translate.Translator, key string) {
	t.SetListenerFault(key, nil)
	delete(f.listeners, key)
}

func (f *faults) clearAddress(t *translate.Translator, a gatewayAddress) {
	namespace, name, _ := strings.Cut(a.gateway, "/")
	t.SetAddressFault(namespace, name, a.address, nil)
	delete(f.addresses, a)
}

// report passes on which listeners do not serve and tells whether that was news for the
// translator. An address that is not on this host is the Gateway's fault, all else the listener's.
func (f *faults) report(t *translate.Translator, served map[config.ID]*config.Resource, failed map[string]error) bool {
	news := false
	for key, err := range failed {
		l := served[config.ID{Kind: config.KindListener, Key: key}].GetListener()
		if l == nil {
			continue
		}
		if a, missing := missingAddress(l, err); missing {
			if !f.addresses[a] {
				namespace, name, _ := strings.Cut(a.gateway, "/")
				t.SetAddressFault(namespace, name, a.address, &translate.AddressFault{
					Message: a.address + " is not an address of this host; add it to an interface, or name another"})
				f.addresses[a] = true
				news = true
			}
			f.tell("Gateway "+a.gateway, err)
			continue
		}
		if f.listeners[key] == nil {
			t.SetListenerFault(key, &translate.ListenerFault{Message: portMessage(l.Port, err)})
			f.listeners[key] = l
			news = true
		}
		f.tell("listener "+key, err)
	}
	return news
}

// missingAddress is the entry of spec.addresses that err is about.
func missingAddress(l *config.Listener, err error) (gatewayAddress, bool) {
	var bind *proxy.BindError
	if len(l.Addresses) == 0 || !errors.Is(err, syscall.EADDRNOTAVAIL) || !errors.As(err, &bind) {
		return gatewayAddress{}, false
	}
	at, parseErr := netip.ParseAddrPort(bind.Address)
	if parseErr != nil {
		return gatewayAddress{}, false
	}
	for _, address := range l.Addresses {
		if ip, err := netip.ParseAddr(address); err == nil && ip == at.Addr() {
			return gatewayAddress{l.Gateway, address}, true
		}
	}
	return gatewayAddress{}, false
}

// tell logs that something cannot be bound, unless the same was said before.
func (f *faults) tell(what string, err error) {
	if f.told[what] == err.Error() {
		return
	}
	f.told[what] = err.Error()
	f.log.Warn("cannot listen; it is tried again every few seconds", "what", what, "error", err)
}

func (f *faults) listenerBindable(l *config.Listener) bool {
	addresses := l.Addresses
	if len(addresses) == 0 {
		for _, ip := range f.bind {
			addresses = append(addresses, ip.String())
		}
	}
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	for _, address := range addresses {
		if !bindable(address, l.Port) {
			return false
		}
	}
	return true
}

// bindable says whether something can listen there; port 0 asks for the address only.
func bindable(address string, port uint32) bool {
	ln, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(port)))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

// portMessage says why a listener cannot be bound and what to do, for its condition.
func portMessage(port uint32, err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Sprintf("port %d is taken by another process; stop that process or choose another port", port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("port %d may not be opened by this user; choose one above 1023 or grant CAP_NET_BIND_SERVICE", port)
	}
	return fmt.Sprintf("port %d cannot be served: %v", port, err)
}
