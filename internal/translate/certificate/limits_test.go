package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
)

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// chainOf is a certificate of its own issue, in PEM.
func chainOf(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	return encode("CERTIFICATE", testkit.Certificate{Hosts: []string{"A.example.com"}, Key: key}.TLS(t).Certificate[0])
}

func read(chain, key []byte) *KeyPair {
	return Read(&corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}})
}

// odd is a number with that many bits.
func odd(bits int) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return n.SetBit(n, 0, 1)
}

type number = *big.Int

// withoutCRT is what some programs write, and crypto/x509 reads.
type withoutCRT struct {
	Version int
	N       number
	E       int
	D, P, Q number
}

// marshal writes an RSA key, be it a sound one or not.
func marshal(t *testing.T, key any) []byte {
	t.Helper()
	der, err := asn1.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func wrap(t *testing.T, der []byte) []byte {
	t.Helper()
	return marshal(t, pkcs8Key{Algorithm: pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}, Key: der})
}

// TestLimits reads keys that crypto/x509 would take between seconds and days for, and says of each what is
// wrong before it calculates anything.
func TestLimits(t *testing.T) {
	good, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	chain, key := chainOf(t, good), encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(good))
	sound := pkcs1Key{0, good.N, good.E, good.D, good.Primes[0], good.Primes[1], good.Precomputed.Dp, good.Precomputed.Dq, good.Precomputed.Qinv, nil}
	altered := func(change func(*pkcs1Key)) []byte {
		k := sound
		change(&k)
		return encode("RSA PRIVATE KEY", marshal(t, k))
	}
	longP := marshal(t, withoutCRT{0, good.N, good.E, good.D, odd(60_000), good.Primes[1]})
	for what, c := range map[string]struct {
		chain, key []byte
		wrong      string
	}{
		"a long prime":            {chain, encode("RSA PRIVATE KEY", longP), "lacks the exponents"},
		"a long prime in PKCS#8":  {chain, encode("PRIVATE KEY", wrap(t, longP)), "lacks the exponents"},
		"a long prime as EC key":  {chain, encode("EC PRIVATE KEY", longP), "lacks the exponents"},
		"a long prime, exponents": {chain, altered(func(k *pkcs1Key) { k.Prime1 = odd(60_000) }), "60000 bits"},
		"a long second prime":     {chain, altered(func(k *pkcs1Key) { k.Prime2 = odd(2048) }), "2048 bits"},
		"a long exponent":         {chain, altered(func(k *pkcs1Key) { k.Exponent1 = odd(60_000) }), "60000 bits"},
		"a long coefficient":      {chain, altered(func(k *pkcs1Key) { k.Coefficient = odd(60_000) }), "60000 bits"},
		"a long private exponent": {chain, altered(func(k *pkcs1Key) { k.PrivateExponent = odd(60_000) }), "private exponent"},
		"a long modulus":          {chain, altered(func(k *pkcs1Key) { k.Modulus = odd(maxModulusBits + 2) }), "8194 bits, and at most 8192"},
		"a key without exponents": {chain, encode("RSA PRIVATE KEY", marshal(t, withoutCRT{0, good.N, good.E, good.D, good.Primes[0], good.Primes[1]})), "lacks the exponents"},
		"many primes": {chain, altered(func(k *pkcs1Key) {
			k.Version, k.Others = 1, make([]struct{ Prime, Exponent, Coefficient *big.Int }, 4)
			for i := range k.Others {
				k.Others[i].Prime, k.Others[i].Exponent, k.Others[i].Coefficient = odd(64), odd(64), odd(64)
			}
		}), "6 primes"},
		"a long text of a chain":   {append(bytes.Repeat([]byte("-"), maxChainBytes), chain...), key, "tls.crt has"},
		"a long text of a key":     {chain, append(bytes.Repeat([]byte("-"), maxKeyBytes), key...), "tls.key has"},
		"a long chain":             {bytes.Repeat(chain, maxBlocks+1), key, "tls.crt has more than 16 PEM blocks"},
		"a key behind many blocks": {chain, append(bytes.Repeat(encode("X", nil), maxBlocks), key...), "tls.key has more than 16 PEM blocks"},
	} {
		if got := read(c.chain, c.key); !strings.Contains(got.Wrong, c.wrong) || got.Chain != nil || got.Key != nil {
			t.Errorf("%s: %q, want %q in it", what, got.Wrong, c.wrong)
		}
	}
}

// TestWithinLimits reads what authorities and common tools write.
func TestWithinLimits(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsa3072, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		t.Fatal(err)
	}
	for what, key := range map[string]crypto.Signer{"Ed25519": ed, "ECDSA": ec, "RSA 2048": rsa2048, "RSA 3072": rsa3072} {
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string][]byte{"PKCS#8": encode("PRIVATE KEY", pkcs8)}
		switch k := key.(type) {
		case *rsa.PrivateKey:
			forms["PKCS#1"] = encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k))
		case *ecdsa.PrivateKey:
			der, err := x509.MarshalECPrivateKey(k)
			if err != nil {
				t.Fatal(err)
			}
			forms["SEC 1"] = append(encode("EC PARAMETERS", []byte{6, 5, 43, 129, 4, 0, 34}), encode("EC PRIVATE KEY", der)...)
		}
		chain := chainOf(t, key)
		for form, text := range forms {
			if got := read(bytes.Repeat(chain, maxBlocks), text); got.Wrong != "" || len(got.Names) != 1 || got.Names[0] != "a.example.com" {
				t.Errorf("%s in %s: %q, names %v", what, form, got.Wrong, got.Names)
			}
		}
	}
}
