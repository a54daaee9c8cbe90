package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
	"github.com/moongate-dev/moongate/internal/translate"
)

// faults are the faults of this host that were reported to the translator: listeners that cannot be bound, addresses that this host
// does not have, and servers that the proxy cannot reach.
type faults struct {
	log       *slog.Logger
	listeners map[string]portFault // by config.Listener.key
	addresses map[gatewayAddress]bool
	// unavailable are the RateLimitServices that the proxy cannot reach, each with a sentence.
	unavailable map[config.ID]string
}

// gatewayAddress is an entry of spec.addresses.
type gatewayAddress struct {
	gateway string // config.Listener.gateway
	address string
}

func newFaults(log *slog.Logger) faults { return faults{log: log} }

func (f *faults) any() bool { return len(f.listeners) > 0 || len(f.addresses) > 0 }

// report passes changes in the listeners that are not served to the translator, and reports whether there are any. served returns a
// listener of the proxy. An address that this host does not have is a fault of the Gateway, all others are faults of the listener.
func (f *faults) report(t *translate.Translator, served func(key string) *config.Listener, failed map[string]*proxy.ListenerError) bool {
	listeners, addresses := map[string]portFault{}, map[gatewayAddress]bool{}
	for key, failure := range failed {
		if errors.Is(failure, net.ErrClosed) { // the proxy is shutting down, or has passed its sockets to another process: that is not a fault of a listener
			return false
		}
		l := served(key)
		if l == nil {
			continue
		}
		var all []portFault
		for _, err := range failure.Unwrap() {
			if address := absent(l, err); address != "" {
				addresses[gatewayAddress{l.Gateway, address}] = true
				continue
			}
			fault := faultOfPort(l.Port, err)
			if bind, is := err.(*proxy.BindError); is && len(l.Addresses) > 1 { // others may be bound
				fault.message = bind.Addr.IP.String() + ": " + fault.message
			}
			if !slices.Contains(all, fault) { // it may be the same for each default address
				all = append(all, fault)
			}
		}
		if len(all) > 0 {
			listeners[key] = joined(all)
		}
	}
	news := f.reportListeners(t, listeners)
	return f.reportAddresses(t, addresses) || news
}

// absent returns the entry of spec.addresses that this host does not have, according to err; "" if err reports something else. It
// does not matter whether the host has the address by now: it is not bound until the next attempt.
func absent(l *config.Listener, err error) string {
	bind, is := err.(*proxy.BindError)
	if !is || !errors.Is(bind, syscall.EADDRNOTAVAIL) {
		return ""
	}
	for _, address := range l.Addresses {
		if ip, err := netip.ParseAddr(address); err == nil && ip == bind.Addr.IP {
			return address
		}
	}
	return ""
}

func (f *faults) reportListeners(t *translate.Translator, now map[string]portFault) bool {
	news := false
	set := func(key string, fault *translate.ListenerFault) {
		gateway, _ := config.SplitListenerKey(key)
		namespace, name, _ := strings.Cut(gateway, "/")
		t.SetListenerFault(key, namespace, name, fault)
		news = true
	}
	for key, fault := range now {
		if f.listeners[key] != fault {
			f.log.Warn("cannot listen, trying again every few seconds", "listener", key, "error", fault.message)
			set(key, &translate.ListenerFault{Message: fault.message, Remedy: fault.remedy})
		}
	}
	for key := range f.listeners {
		if _, still := now[key]; !still {
			set(key, nil)
		}
	}
	f.listeners = now
	return news
}

func (f *faults) reportAddresses(t *translate.Translator, now map[gatewayAddress]bool) bool {
	news := false
	set := func(a gatewayAddress, fault *translate.AddressFault) {
		namespace, name, _ := strings.Cut(a.gateway, "/")
		t.SetAddressFault(namespace, name, a.address, fault)
		news = true
	}
	for a := range now {
		if !f.addresses[a] {
			f.log.Warn("not an address of this host, trying again every few seconds", "gateway", a.gateway, "address", a.address)
			set(a, &translate.AddressFault{Message: "it is not an address of this host; add it to an interface, or name another"})
		}
	}
	for a := range f.addresses {
		if !now[a] {
			set(a, nil)
		}
	}
	f.addresses = now
	return news
}

// reportUnavailable passes changes in what the proxy cannot reach to the translator, and reports whether there are any.
func (f *faults) reportUnavailable(t *translate.Translator, now map[config.ID]string) bool {
	if maps.Equal(now, f.unavailable) {
		return false
	}
	set := func(id config.ID, message string) {
		namespace, name, _ := strings.Cut(id.Key, "/")
		t.SetRateLimitFault(namespace, name, message)
	}
	for id := range f.unavailable {
		set(id, "")
	}
	for id, message := range now {
		set(id, message)
	}
	f.unavailable = now
	return true
}

// portFault is why a listener cannot be bound. remedy is "" if it is to free the port.
type portFault struct{ message, remedy string }

// joined combines several faults.
func joined(all []portFault) portFault {
	if len(all) == 1 {
		return all[0]
	}
	var messages, remedies []string
	for _, f := range all {
		messages = append(messages, f.message)
		if remedy := cmp.Or(f.remedy, "free the port or use another"); !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	return portFault{strings.Join(messages, "; "), strings.Join(remedies, "; ")}
}

func faultOfPort(port uint32, err error) portFault {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return portFault{message: fmt.Sprintf("port %d is taken by another process", port)}
	case errors.Is(err, syscall.EACCES):
		return portFault{fmt.Sprintf("port %d may not be opened by this user (ports below 1024 need CAP_NET_BIND_SERVICE)", port),
			"grant that capability, or use a port of at least 1024"}
	case errors.Is(err, syscall.EADDRNOTAVAIL): // of a listener without spec.addresses
		return portFault{"an address of --bind is not an address of this host: " + err.Error(), "correct --bind, or add the address to an interface"}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return portFault{"no descriptor is free for the port: " + err.Error(), "raise the limit of open files of the process"}
	}
	return portFault{message: err.Error()}
}
