package translate_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

func pemSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{}}
	s.Namespace, s.Name = "default", name
	for key, file := range map[string]string{corev1.TLSCertKey: "example.crt", corev1.TLSPrivateKeyKey: "example.key"} {
		data, err := os.ReadFile("testdata/pem/" + file)
		if err != nil {
			t.Fatal(err)
		}
		s.Data[key] = data
	}
	return s
}

// cluster is what Remote makes of a world: it fetches what is needed, and commits until nothing more is.
type cluster struct {
	*world
	t       *testing.T
	secrets map[string]metav1.Object // by name: a Secret, or an UnreadSecret; absent ones have none
}

func (c *cluster) settle() {
	c.t.Helper()
	gone := map[string]bool{}
	defer func() {
		for name := range gone {
			if !c.needed[kind.ObjectKey{Kind: "Secret", Namespace: "default", Name: name}] {
				c.Delete(translate.KindSecret, "default", name)
			}
		}
		c.commit(c.t)
	}()
	for {
		r := c.commit(c.t)
		found := false
		for _, request := range r.SecretRequests {
			name := request.Object.Name
			if !request.Needed {
				gone[name] = true // as the source does: it tells later, with what is needed then
			} else {
				c.Fetched(request.Object, c.secrets[name])
				found = true
			}
		}
		if !found {
			return
		}
	}
}

// certificates are the names of the Secrets with which the HTTPS listener is served.
func (c *cluster) certificates() (names []string) {
	l := c.config[config.ID{Kind: config.KindListener, Key: "default/gw/https-a"}].GetListener()
	for _, key := range l.ServerCertificates() {
		names = append(names, strings.TrimPrefix(key, "Secret/default/"))
		if c.config[config.ID{Kind: config.KindCertificate, Key: key}] == nil {
			c.t.Errorf("certificate %s is not there", key)
		}
	}
	return names
}

func (c *cluster) message() string {
	s := c.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default", Name: "gw"}].Status.(*gwv1.GatewayStatus)
	for _, l := range s.Listeners {
		for _, condition := range l.Conditions {
			if l.Name == "https-a" && condition.Type == string(gwv1.ListenerConditionResolvedRefs) {
				return condition.Message
			}
		}
	}
	return "no condition"
}

// TestUnreadSecretKeepsCertificates lets a listener refer to Secrets in every state, one after the other.
func TestUnreadSecretKeepsCertificates(t *testing.T) {
	unread := func(name string, forbidden bool) *translate.UnreadSecret {
		return &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Forbidden: forbidden}
	}
	c := &cluster{newWorldWith(clusterOptions), t, map[string]metav1.Object{
		"one": pemSecret(t, "one"), "two": unread("two", false), "three": unread("three", true),
	}}
	c.Upsert(ownClass("moongate"))
	c.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
	for _, step := range []struct {
		what         string
		do           func()
		certificates []string
		unread       int
		message      string // what it contains
	}{
		{"a Secret that could not be read, before anything was served", func() { c.Upsert(secretGateway("two")) }, nil, 1, "Secret default/two could not be read yet"},
		{"one that is there", func() { c.Upsert(secretGateway("one")) }, []string{"one"}, 0, ""},
		{"one that could not be read", func() { c.Upsert(secretGateway("two")) }, []string{"one"}, 1, "Secret default/two could not be read yet"},
		{"another generation", func() { c.Upsert(crowdRoute(1, "/")) }, []string{"one"}, 1, "could not be read yet"},
		{"it is read", func() { c.secrets["two"] = pemSecret(t, "two"); c.Upsert(c.secrets["two"]) }, []string{"two"}, 0, ""},
		{"one that is forbidden", func() { c.Upsert(secretGateway("three")) }, []string{"two"}, 0, "the controller is not allowed to read Secret default/three"},
		{"one that is not there", func() { c.Upsert(secretGateway("absent")) }, nil, 0, "Secret default/absent does not exist"},
		{"another generation", func() { c.Upsert(crowdRoute(1, "/x")) }, nil, 0, "Secret default/absent does not exist"},
		{"one that is there, again", func() { c.Upsert(secretGateway("one")) }, []string{"one"}, 0, ""},
		{"one that could not be read, again", func() { c.Upsert(secretGateway("two")); c.secrets["two"] = unread("two", false) }, []string{"one"}, 1, "could not be read yet"},
		{"it turns out not to be there", func() { c.Delete(translate.KindSecret, "default", "two") }, nil, 0, "Secret default/two does not exist"},
	} {
		step.do()
		c.settle()
		if got := c.certificates(); !slices.Equal(got, step.certificates) {
			t.Errorf("%s: served with %q, want %q", step.what, got, step.certificates)
		}
		if got := c.UnreadSecrets(); got != step.unread {
			t.Errorf("%s: %d unread", step.what, got)
		}
		if got := c.message(); !strings.Contains(got, step.message) || step.message == "" && got != "" {
			t.Errorf("%s: message %q, want %q", step.what, got, step.message)
		}
	}
	c.settle() // what was kept in case is needed no more
	c.settle()
	for want := range c.needed {
		if want.Name != "two" {
			t.Errorf("%v is still needed", want)
		}
	}
}

// TestCertificatesStayWhileASecretIsRead has an HTTPS listener refer to another Secret, whose read takes longer than other changes,
// and then tells that it cannot be read, or is not there.
func TestCertificatesStayWhileASecretIsRead(t *testing.T) {
	secret := func(name string) kind.ObjectKey {
		return kind.ObjectKey{Kind: "Secret", Namespace: "default", Name: name}
	}
	for _, test := range []struct {
		answer metav1.Object
		want   []string
	}{
		{&translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}, []string{"one"}},
		{pemSecret(t, "two"), []string{"two"}},
		{nil, nil},
	} {
		c := &cluster{newWorldWith(clusterOptions), t, map[string]metav1.Object{"one": pemSecret(t, "one")}}
		c.Upsert(ownClass("moongate"))
		c.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
		c.Upsert(secretGateway("one"))
		c.settle()
		expect := func(what string, want []string) {
			t.Helper()
			if got := c.certificates(); !slices.Equal(got, want) {
				t.Errorf("%s, answered %T: served with %q, want %q", what, test.answer, got, want)
			}
		}
		expect("before", []string{"one"})

		c.Upsert(secretGateway("two"))
		for i := range 3 { // commits between the request and its answer
			c.commit(t)
			c.Upsert(crowdRoute(1, "/"+strings.Repeat("x", i)))
			if !c.needed[secret("one")] || !c.needed[secret("two")] {
				t.Fatalf("needed are %v", c.needed)
			}
		}
		expect("while it is read", []string{"one"})
		c.Delete(translate.KindSecret, "default", "two") // what is left of an earlier request is no answer
		c.commit(t)
		expect("after a late deletion", []string{"one"})
		c.Fetched(secret("two"), test.answer)
		c.commit(t)
		c.Upsert(crowdRoute(1, "/y"))
		c.commit(t)
		expect("answered", test.want)
		if kept := slices.Contains(test.want, "one"); c.needed[secret("one")] != kept {
			t.Errorf("answered %T: needed are %v", test.answer, c.needed)
		}
		if test.answer != nil {
			c.Delete(translate.KindSecret, "default", "two")
			c.commit(t)
			expect("once it is deleted", nil)
		}
	}
}

// TestUnreadSecretKeepsClientCertificate lets a Gateway's client certificate be in Secrets in every state, one after the other.
func TestUnreadSecretKeepsClientCertificate(t *testing.T) {
	unread := func(name string) *translate.UnreadSecret {
		return &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	}
	c := &cluster{newWorldWith(clusterOptions), t, map[string]metav1.Object{"one": pemSecret(t, "one"), "two": unread("two")}}
	c.Upsert(ownClass("moongate"))
	gateway := func(secret string) *gwv1.Gateway {
		gw := crowdGateway(1)
		gw.Spec.TLS = &gwv1.GatewayTLSConfig{Backend: &gwv1.GatewayBackendTLS{ClientCertificateRef: &gwv1.SecretObjectReference{Name: gwv1.ObjectName(secret)}}}
		return gw
	}
	for _, step := range []struct {
		what   string
		do     func()
		secret string
		reason string
	}{
		{"a Secret that could not be read, before anything was shown", func() { c.Upsert(gateway("two")) }, "", "InvalidClientCertificateRef"},
		{"one that is there", func() { c.Upsert(gateway("one")) }, "one", "ResolvedRefs"},
		{"one that could not be read", func() { c.Upsert(gateway("two")) }, "one", "InvalidClientCertificateRef"},
		{"another generation", func() { c.Upsert(crowdRoute(1, "/")) }, "one", "InvalidClientCertificateRef"},
		{"it is read", func() { c.secrets["two"] = pemSecret(t, "two"); c.Upsert(c.secrets["two"]) }, "two", "ResolvedRefs"},
		{"one that is not there", func() { c.Upsert(gateway("absent")) }, "", "InvalidClientCertificateRef"},
		{"one that is there, again", func() { c.Upsert(gateway("one")) }, "one", "ResolvedRefs"},
		{"it is deleted", func() { delete(c.secrets, "one"); c.Delete(translate.KindSecret, "default", "one") }, "", "InvalidClientCertificateRef"},
	} {
		step.do()
		c.settle()
		listeners, want := 0, ""
		if step.secret != "" {
			want = config.SecretKey("default", step.secret)
		}
		for id, r := range c.config {
			if id.Kind != config.KindListener {
				continue
			}
			listeners++
			identity := r.GetListener().GetIdentity()
			if identity == nil || identity.Certificate != want {
				t.Errorf("%s: shows %v, want Secret %q", step.what, identity, step.secret)
			}
		}
		s := c.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default", Name: "gw"}].Status.(*gwv1.GatewayStatus)
		refs := meta.FindStatusCondition(s.Conditions, string(gwv1.GatewayConditionResolvedRefs))
		if listeners == 0 || refs == nil || refs.Reason != step.reason {
			t.Errorf("%s: %d listeners, %+v", step.what, listeners, refs)
		}
		if gateways := c.GatewaysWith(kind.Secret.Key("default", "two")); step.what == "one that could not be read" && !slices.Equal(gateways, []string{"default/gw"}) {
			t.Errorf("%s: Gateways %q", step.what, gateways)
		}
	}
}
