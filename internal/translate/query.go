package translate

import (
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
)

// HasStatus reports whether the object should have a status, as of the last Commit. After a restart it shows which entries of this
// controller remain from before.
func (t *Translator) HasStatus(o kind.ObjectKey) bool {
	wanted, _ := t.currentStatus(kindName{Kind(o.Kind), name{o.Namespace, o.Name}})
	return wanted != nil
}

// Failing reports whether a function panicked on the object, as of the last Commit: then its present configuration is unknown. A
// Gateway depends on its GatewayClass, so it is failing too if its class is.
func (t *Translator) Failing(o kind.ObjectKey) bool {
	n := name{o.Namespace, o.Name}
	if t.failed[kindName{Kind(o.Kind), n}] {
		return true
	}
	if gw, ok := t.in.gateways.Get(n); ok && Kind(o.Kind) == KindGateway {
		return t.failed[kindName{KindGatewayClass, name{"", string(gw.Spec.GatewayClassName)}}]
	}
	return false
}

// FailingOf reports whether a function panicked on a Gateway of a class, as of the last Commit: then it is not known whether the
// class has Gateways.
func (t *Translator) FailingOf(class string) bool {
	for k := range t.failed {
		if gw, ok := t.in.gateways.Get(k.Name); ok && k.Kind == KindGateway && string(gw.Spec.GatewayClassName) == class {
			return true
		}
	}
	return false
}

// GatewaysWith returns the Gateways, as "<namespace>/<name>", that refer to a Secret and are permitted to, directly, by their
// listeners, or by the XBackends that they reach, as of the last Commit.
func (t *Translator) GatewaysWith(secret kind.ObjectKey) (gateways []string) {
	n := name{secret.Namespace, secret.Name}
	for _, k := range t.secrets.users.Get(n) {
		l, _ := t.listeners.all.Get(k)
		for from, ref := range references(k, l) {
			if name(ref.Secret) == n && t.secrets.grants.permittedSecret(from, n) {
				gateways = append(gateways, k.Gateway.String())
			}
		}
	}
	gateways = append(gateways, t.gatewaysByXBackend(n)...)
	for _, g := range t.redises.bySecret.Get(n) {
		gateways = append(gateways, g.String())
	}
	return t.proxiesOf(gateways)
}

// SharedWith returns those of GatewaysWith that other users than the owner of the Gateway can make wait for Secrets again and again:
// Gateways with ListenerSets, and those that reach an XBackend which refers to the Secret. It may include Gateways that do not wait.
func (t *Translator) SharedWith(secret kind.ObjectKey) (gateways []string) {
	n := name{secret.Namespace, secret.Name}
	for _, k := range t.secrets.users.Get(n) {
		if len(t.listeners.setsByGateway.Get(k.Gateway)) > 0 {
			gateways = append(gateways, k.Gateway.String())
		}
	}
	return t.proxiesOf(append(gateways, t.gatewaysByXBackend(n)...))
}

// gatewaysByXBackend returns the Gateways, as "<namespace>/<name>", that reach an XBackend which refers to a Secret and is permitted
// to.
func (t *Translator) gatewaysByXBackend(secret name) (gateways []string) {
	for _, x := range t.secrets.byXBackend.Get(secret) {
		if !t.secrets.grants.permittedSecret(xbackendReferrer(x), secret) {
			continue
		}
		for _, g := range t.xbackendGateways.byTarget.Get(xbackendTarget(x)) {
			gateways = append(gateways, g.Gateway.String())
		}
	}
	return gateways
}

// Undecided returns the Gateways, as "<namespace>/<name>", that refer, in a listener of their own or as their client certificate, to
// a Secret of another namespace that cannot be read, as of the last Commit: it is not known whether a ReferenceGrant permits that.
// References of ListenerSets and XBackends do not count, because one owner of these must not block all changes for the others.
// Merged Gateways are not included either: none of them may wait for it.
func (t *Translator) Undecided() (gateways []string) {
	for n := range t.installation.unreadNamespaces.All() {
		for _, k := range t.secrets.abroad.Get(n.Name) {
			gateways = append(gateways, k.Gateway.String())
		}
	}
	return slices.DeleteFunc(t.proxiesOf(gateways), func(gateway string) bool {
		_, n, _ := strings.Cut(gateway, "/")
		_, merged := config.MergedClass(n)
		return merged
	})
}
