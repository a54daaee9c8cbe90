package listener

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// TestHostnamesOverlap compares what is found by keys with a comparison of each hostname with each other.
func TestHostnamesOverlap(t *testing.T) {
	hostnames := []string{"", "a.test", "b.test", "*.test", "*.a.test", "x.a.test", "*.b.a.test", "test", "y.b.a.test", "*.org", "a.org"}
	for _, a := range hostnames {
		offered := OfferedHostnameKeys(a)
		for _, b := range hostnames {
			found := slices.ContainsFunc(AskedHostnameKeys(b), func(key string) bool { return slices.Contains(offered, key) })
			if a != b && found != overlaps(a, b) {
				t.Errorf("%q and %q: %v, want %v", b, a, found, overlaps(a, b))
			}
		}
	}
}

func TestCertificatesOverlap(t *testing.T) {
	of := func(hostname string, names ...string) *CertificateNames {
		return NewCertificateNames(&Listener{Port: 443, Hostname: hostname}, names)
	}
	for name, tc := range map[string]struct {
		a, b *CertificateNames
		want bool
	}{
		"one wildcard for two hosts":                    {of("foo.test", "*.test"), of("bar.test", "*.test"), true},
		"the example of the specification":              {of("", "*.example.com"), of("foo.example.com", "foo.example.com"), true},
		"one certificate for two hosts":                 {of("a.test", "a.test", "b.test"), of("b.test", "a.test", "b.test"), true},
		"one has the other's host, too":                 {of("a.test", "a.test", "b.test"), of("b.test", "b.test"), true},
		"each its own":                                  {of("a.test", "a.test"), of("b.test", "b.test"), false},
		"what they share is served by neither":          {of("a.test", "a.test", "x.test"), of("b.test", "b.test", "x.test"), false},
		"a wildcard stands for one label":               {of("a.test", "*.test"), of("b.c.test", "b.c.test"), false},
		"wildcards of different depth":                  {of("*.test", "*.test"), of("*.a.test", "*.a.test"), false},
		"a listener for all below":                      {of("*.test", "*.a.test"), of("b.a.test", "b.a.test"), true},
		"a wildcard and a name in it":                   {of("*.test", "*.test"), of("", "x.test"), true},
		"a wildcard that is of no use there":            {of("a.org", "*.test"), of("b.test", "*.test"), false},
		"a certificate that is of no use there":         {of("a.test", "other.org"), of("other.test", "other.org"), false},
		"of several certificates the one that is shown": {NewCertificateNames(&Listener{Port: 443, Hostname: "a.test"}, []string{"a.test"}, []string{"b.test"}), of("b.test", "b.test"), false},
		"a label and a name":                            {of("test", "test"), of("a.test", "a.test"), false},
	} {
		if overlap(tc.a, tc.b) != tc.want || overlap(tc.b, tc.a) != tc.want {
			t.Errorf("%s: %v and %v, want %v", name, overlap(tc.a, tc.b), overlap(tc.b, tc.a), tc.want)
		}
	}
}

// overlap reports whether one asks for what the other offers.
func overlap(a, b *CertificateNames) bool {
	meet := func(asks, offers []string) bool {
		return slices.ContainsFunc(asks, func(ask string) bool { return slices.Contains(offers, ask) })
	}
	return meet(a.Asks(), b.Offers()) || meet(b.Asks(), a.Offers())
}

// TestCertificateNamesAreBounded: what is looked up is bounded by the hosts and names, which large Secrets must not make many.
func TestCertificateNamesAreBounded(t *testing.T) {
	var certificates [][]string
	for i := range 64 {
		var names []string
		for j := range 5000 {
			names = append(names, fmt.Sprintf("h%d-%d.test", i, j))
		}
		certificates = append(certificates, names)
	}
	s := NewCertificateNames(&Listener{Port: 443}, certificates...)
	if len(s.Hosts) != 1000 || len(s.Names) != 1000 || len(s.Asks())+len(s.Offers()) > 4000 {
		t.Errorf("%d hosts, %d names, %d asked for, %d offered", len(s.Hosts), len(s.Names), len(s.Asks()), len(s.Offers()))
	}
}

func TestCertificateNamesEqual(t *testing.T) {
	a := NewCertificateNames(&Listener{Port: 443, Hostname: "*.test"}, []string{"b.test", "a.test"}, []string{"a.test", "x.org"}, []string{"y.org"})
	b := NewCertificateNames(&Listener{Port: 443, Hostname: "*.test"}, []string{"x.org", "a.test", "b.test"})
	if !a.Equal(b) || !reflect.DeepEqual(a.Hosts, []string{"a.test", "b.test"}) {
		t.Errorf("%v, %v", a, b)
	}
	for _, other := range []*CertificateNames{
		NewCertificateNames(&Listener{Port: 444, Hostname: "*.test"}, b.Names), NewCertificateNames(&Listener{Port: 443}, b.Names),
		NewCertificateNames(&Listener{Port: 443, Hostname: "*.test"}, b.Names[1:]),
	} {
		if a.Equal(other) {
			t.Errorf("%v is taken for %v", other, a)
		}
	}
}
