package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// listenerCertificates resolves the certificates of listeners that terminate TLS.
type listenerCertificates struct {
	unreadSecrets *incremental.Collection[name, bool]
	// invalidSecrets are the Secrets in files that exist and were rejected.
	invalidSecrets *incremental.Collection[name, bool]
	grants         *grants
	secrets        *secrets
}

// resolveCertificates returns the keys of the certificates that can be used and
// what is wrong with the others. A listener with one good certificate is served. Those whose Secrets could not be read are among both.
func (lc *listenerCertificates) resolveCertificates(v *incremental.View, k listenerKey, l *listener.Listener) (keys []string, wrong []*condition.Problem) {
	if len(l.Certificates) == 0 {
		return nil, []*condition.Problem{condition.NewProblem(gwv1.ListenerReasonInvalidCertificateRef, l.Field+".tls.certificateRefs",
			"add a reference to a Secret of type "+string(corev1.SecretTypeTLS), "a listener of protocol %s needs a certificate", l.Protocol)}
	}
	for _, ref := range l.Certificates {
		key, p := lc.resolveCertificate(v, k, ref)
		if p != nil {
			wrong = append(wrong, p)
			key = lc.secrets.unreadCertificate(v, listenerReferrer(k), ref)
		}
		if key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys, wrong
}

// listenerReferrer returns the referrer for the certificates and backends of a listener.
func listenerReferrer(k listenerKey) referrer {
	owner := k.Owner()
	return referrer{kind.Named(string(owner.Kind)).Group, string(owner.Kind), owner.Name}
}

// gatewayReferrer returns the referrer for the client certificate of a Gateway, also for listeners of ListenerSets.
func gatewayReferrer(gateway name) referrer {
	return referrer{gwv1.GroupName, string(KindGateway), gateway}
}

func (lc *listenerCertificates) resolveCertificate(v *incremental.View, k listenerKey, ref listener.CertificateRef) (string, *condition.Problem) {
	return lc.resolve(v, listenerReferrer(k), ref, string(gwv1.ListenerReasonInvalidCertificateRef))
}

// resolveClientCertificate returns the key of the client certificate of a Gateway, or what is wrong with the reference to it.
func (lc *listenerCertificates) resolveClientCertificate(v *incremental.View, gateway name, ref listener.CertificateRef) (string, *condition.Problem) {
	return lc.resolve(v, gatewayReferrer(gateway), ref, string(gwv1.GatewayReasonInvalidClientCertificateRef))
}

// identity returns the client certificate for backends of a listener's routes; nil if the Gateway has none.
func (lc *listenerCertificates) identity(v *incremental.View, k listenerKey, l *listener.Listener) *config.Identity {
	if l.Client == nil {
		return nil
	}
	key, p := lc.resolveClientCertificate(v, k.Gateway, *l.Client)
	if p != nil {
		key = lc.secrets.keepClientCertificate(v, k, l)
	}
	return &config.Identity{Certificate: key}
}

// resolve returns the key of the certificate that a reference names. invalid is the reason of all problems except a missing grant.
func (lc *listenerCertificates) resolve(v *incremental.View, from referrer, ref listener.CertificateRef, invalid string) (string, *condition.Problem) {
	secret := name(ref.Secret)
	// Permission comes first: the other reasons are only for references that are permitted, whatever the kind (ListenerReasonInvalidCertificateRef).
	if !lc.grants.permitted(v, from, ref.Group, ref.Kind, secret) {
		return "", condition.NewProblem(gwv1.ListenerReasonRefNotPermitted, ref.Field+".namespace", lc.grants.grantRemedy(v, from, ref.Kind, secret),
			"no ReferenceGrant permits the reference to %s %s", ref.Kind, secret)
	}
	if ref.Unknown {
		return "", condition.NewProblem(invalid, ref.Field+".kind", "refer to a Secret",
			"%s of group %q cannot hold a certificate", ref.Kind, ref.Group)
	}
	pair, exists := incremental.Fetch(v, lc.secrets.keyPairs, secret)
	if forbidden, unread := incremental.Fetch(v, lc.unreadSecrets, secret); !exists && unread {
		if forbidden {
			return "", condition.NewProblem(invalid, ref.Field+".name",
				"allow its ServiceAccount to get secrets in namespace "+secret.Namespace, "the controller is not allowed to read Secret %s", secret)
		}
		until := "what was served before stays"
		if from.Kind == string(KindXBackend) {
			until = "proxies without its certificate send no request to the XBackend"
		}
		return "", condition.NewProblem(invalid, ref.Field+".name", "if that lasts, look at the controller's log",
			"Secret %s could not be read yet; it is tried again, and until then %s", secret, until)
	}
	if _, refused := incremental.Fetch(v, lc.invalidSecrets, secret); !exists && refused {
		return "", condition.NewProblem(invalid, ref.Field+".name", "correct what is reported of it", "Secret %s is not valid", secret)
	}
	if !exists {
		return "", condition.NewProblem(invalid, ref.Field+".name", "create it or correct the name",
			"Secret %s does not exist", secret)
	}
	if pair.Wrong != "" {
		return "", condition.NewProblem(invalid, ref.Field+".name", "correct the Secret",
			"Secret %s: %s", secret, pair.Wrong)
	}
	return config.SecretKey(secret.Namespace, secret.Name), nil
}
