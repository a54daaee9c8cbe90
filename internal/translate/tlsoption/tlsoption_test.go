package tlsoption

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestRead(t *testing.T) {
	const own = gwv1.AnnotationKey(Domain + "own")
	for _, tc := range []struct {
		options Options
		limits  Limits
		refused []gwv1.AnnotationKey
		foreign []gwv1.AnnotationKey
	}{
		{},
		{options: Options{own: "x"}},
		{options: Options{MinVersion: "1.2"}, limits: Limits{MinVersion: tls.VersionTLS12}},
		{options: Options{MinVersion: "1.3"}, limits: Limits{MinVersion: tls.VersionTLS13}},
		{options: Options{MinVersion: "1.1"}, refused: []gwv1.AnnotationKey{MinVersion}},
		{options: Options{MinVersion: ""}, refused: []gwv1.AnnotationKey{MinVersion}},
		{
			options: Options{CipherSuites: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 , TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
			limits:  Limits{CipherSuites: []uint32{0xc02b, 0xc030}},
		},
		{options: Options{CipherSuites: ""}, refused: []gwv1.AnnotationKey{CipherSuites}},
		{options: Options{CipherSuites: "TLS_AES_128_GCM_SHA256"}, refused: []gwv1.AnnotationKey{CipherSuites}},
		{options: Options{CipherSuites: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"}, refused: []gwv1.AnnotationKey{CipherSuites}}, // no HTTP/2 with it
		{options: Options{CipherSuites: "TLS_RSA_WITH_AES_128_GCM_SHA256"}, refused: []gwv1.AnnotationKey{CipherSuites}},
		{
			options: Options{MinVersion: "1.3", CipherSuites: "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
			limits:  Limits{MinVersion: tls.VersionTLS13, CipherSuites: []uint32{0xc030}}, refused: []gwv1.AnnotationKey{CipherSuites},
		},
		{options: Options{Domain + "tls-max-version": "1.2"}, refused: []gwv1.AnnotationKey{Domain + "tls-max-version"}},
		{options: Options{"b": "", "example.com/a": "x", MinVersion: "1.2"}, limits: Limits{MinVersion: tls.VersionTLS12}, foreign: []gwv1.AnnotationKey{"b", "example.com/a"}},
	} {
		var refused []gwv1.AnnotationKey
		limits, foreign := Read(tc.options, func(key gwv1.AnnotationKey, remedy, format string, args ...any) {
			if remedy == "" || fmt.Sprintf(format, args...) == "" {
				t.Errorf("%v: %s is refused without a word", tc.options, key)
			}
			refused = append(refused, key)
		}, own)
		if !reflect.DeepEqual(limits, tc.limits) || !slices.Equal(refused, tc.refused) || !slices.Equal(foreign, tc.foreign) {
			t.Errorf("%v: %+v, refused %v, foreign %v", tc.options, limits, refused, foreign)
		}
	}
}
