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

// certificates are the names of the Secrets with which the HTTPS listener is served, with a question mark behind those that only proxies may have.
func (c *cluster) certificates() (names []string) {
	l := c.config[config.ID{Kind: config.KindListener, Key: "default/gw/https-a"}].GetListener()
	for _, key := range l.ServerCertificates() {
		shown := strings.TrimPrefix(key, "Secret/default/")
		r := c.config[config.ID{Kind: config.KindCertificate, Key: key}]
		if r == nil {
			c.t.Errorf("certificate %s is not there", key)
		}
		if r.Unread() {
			shown += "?"
		}
		names = append(names, shown)
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
		{"a Secret that could not be read, before anything was served", func() { c.Upsert(secretGateway("two")) }, []string{"two?"}, 1, "Secret default/two could not be read yet"},
		{"one that is there", func() { c.Upsert(secretGateway("one")) }, []string{"one"}, 0, ""},
		{"one that could not be read", func() { c.Upsert(secretGateway("two")) }, []string{"two?", "one"}, 1, "Secret default/two could not be read yet"},
		{"another generation", func() { c.Upsert(crowdRoute(1, "/")) }, []string{"two?", "one"}, 1, "could not be read yet"},
		{"it is read", func() { c.secrets["two"] = pemSecret(t, "two"); c.Upsert(c.secrets["two"]) }, []string{"two"}, 0, ""},
		{"one that is forbidden", func() { c.Upsert(secretGateway("three")) }, []string{"three?", "two"}, 1, "the controller is not allowed to read Secret default/three"},
		{"one that is not there", func() { c.Upsert(secretGateway("absent")) }, nil, 0, "Secret default/absent does not exist"},
		{"another generation", func() { c.Upsert(crowdRoute(1, "/x")) }, nil, 0, "Secret default/absent does not exist"},
		{"one that is there, again", func() { c.Upsert(secretGateway("one")) }, []string{"one"}, 0, ""},
		{"one that could not be read, again", func() { c.Upsert(secretGateway("two")); c.secrets["two"] = unread("two", false) }, []string{"two?", "one"}, 1, "could not be read yet"},
		{"it turns out not to be there", func() { c.Delete(translate.KindSecret, "default", "two") }, nil, 0, "Secret default/two does not exist"},
	} {
		step.do()
		c.settle()
		if got := c.certificates(); !slices.Equal(got, step.certificates) {
			t.Errorf("%s: served with %q, want %q", step.what, got, step.certificates)
		}
		if got := len(c.Unread()); got != step.unread {
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
		{&translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "two"}}, []string{"two?", "one"}},
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
		{"a Secret that could not be read, before anything was shown", func() { c.Upsert(gateway("two")) }, "two", "InvalidClientCertificateRef"},
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
			if certificate := c.config[config.ID{Kind: config.KindCertificate, Key: want}]; want != "" && certificate == nil {
				t.Errorf("%s: certificate %s is not there", step.what, want)
			}
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

// TestUnreadSecretsOfANewProcess: a translator that has served nothing names the certificates of Secrets that it cannot read, in the order of the references, so that proxies which
// have them keep them: only where the reference is permitted, and of all that are named during an outage no more than the first and those of now.
func TestUnreadSecretsOfANewProcess(t *testing.T) {
	unread := func(namespace, name string) *translate.UnreadSecret {
		return &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	c := &cluster{newWorldWith(clusterOptions), t, map[string]metav1.Object{"read": pemSecret(t, "read"), "other": unread("elsewhere", "other")}}
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		c.secrets[name] = unread("default", name)
	}
	c.Upsert(ownClass("moongate"))
	c.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
	gateway := func(secrets ...string) *gwv1.Gateway {
		gw := secretGateway(secrets[0])
		l := &gw.Spec.Listeners[len(gw.Spec.Listeners)-1]
		for _, s := range secrets[1:] {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, gwv1.SecretObjectReference{Name: gwv1.ObjectName(s)})
		}
		return gw
	}
	grant := &gwv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "grant"}, Spec: gwv1.ReferenceGrantSpec{
		From: []gwv1.ReferenceGrantFrom{{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default"}}, To: []gwv1.ReferenceGrantTo{{Kind: "Secret"}}}}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"one of two can be read", func() { c.Upsert(gateway("one", "read")) }, []string{"one?", "read"}},
		{"the other way round", func() { c.Upsert(gateway("read", "one")) }, []string{"read", "one?"}},
		{"another one instead", func() { c.Upsert(gateway("two")) }, []string{"two?", "read", "one?"}},
		{"a third", func() { c.Upsert(gateway("three")) }, []string{"three?", "read", "one?"}},
		{"several", func() { c.Upsert(gateway("four", "five")) }, []string{"four?", "five?", "read", "one?"}},
		{"what was first turns out not to be there", func() { delete(c.secrets, "one"); c.Delete(translate.KindSecret, "default", "one") }, []string{"four?", "five?", "read"}},
		{"one that is read", func() { c.Upsert(gateway("read")) }, []string{"read"}},
		{"one of another namespace without a grant", func() { c.Upsert(gateway("other")); c.Upsert(unread("elsewhere", "other")) }, nil},
		{"with one", func() { c.Upsert(grant) }, []string{"Secret/elsewhere/other?"}},
		{"without it again", func() { c.Delete(translate.KindReferenceGrant, "elsewhere", "grant") }, nil},
	} {
		step.do()
		c.settle()
		c.settle()
		if got := c.certificates(); !slices.Equal(got, step.want) {
			t.Errorf("%s: served with %q, want %q", step.what, got, step.want)
		}
	}
}

// TestUnreadSecretThatProxiesLack: a listener whose only certificate could not be read is programmed as long as a proxy has it, and otherwise not for that reason: nothing is wrong with its port.
func TestUnreadSecretThatProxiesLack(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
	w.Upsert(secretGateway("one"))
	w.commit(t)
	w.Fetched(kind.Secret.Key("default", "one"), &translate.UnreadSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}})
	expect := func(what string, accepted, programmed metav1.ConditionStatus, resolved metav1.ConditionStatus, message string) {
		t.Helper()
		w.commit(t)
		s := w.statuses[kind.Gateway.Key("default", "gw")].Status.(*gwv1.GatewayStatus)
		for _, l := range s.Listeners {
			if l.Name != "https-a" {
				continue
			}
			for of, want := range map[gwv1.ListenerConditionType]metav1.ConditionStatus{
				gwv1.ListenerConditionAccepted: accepted, gwv1.ListenerConditionProgrammed: programmed, gwv1.ListenerConditionResolvedRefs: resolved} {
				if c := meta.FindStatusCondition(l.Conditions, string(of)); c.Status != want || of == gwv1.ListenerConditionProgrammed && !strings.Contains(c.Message, message) {
					t.Errorf("%s: %s is %s %s %q", what, of, c.Status, c.Reason, c.Message)
				}
			}
		}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	expect("all proxies have it", yes, yes, no, "")
	fault := &translate.ListenerFault{Message: "none of the certificates is there", Others: true}
	w.setListenerFault("default/gw/https-a", fault)
	expect("some have it", yes, yes, no, "none of the certificates is there")
	fault.Others = false
	w.setListenerFault("default/gw/https-a", fault)
	expect("none has it", yes, no, no, "see condition ResolvedRefs. none of the certificates is there")
	w.Upsert(pemSecret(t, "one"))
	expect("it is read, and the proxies have not answered", no, no, yes, "")
	w.setListenerFault("default/gw/https-a", nil)
	expect("they have", yes, yes, yes, "")
}
