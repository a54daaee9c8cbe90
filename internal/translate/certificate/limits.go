package certificate

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Any user who may write a Secret that a listener refers to decides what is parsed here, and Commit waits for it. The time that
// crypto/x509 takes grows with the cube of an RSA prime, without a limit. Longer moduli are rejected by clients with crypto/tls too,
// and they slow down each handshake.
const (
	maxChainBytes   = 128 << 10
	maxKeyBytes     = 32 << 10
	maxBlocks       = 16 // PEM blocks in each of the two
	maxModulusBits  = 8192
	maxPrimes       = 5  // as in OpenSSL
	maxUnevenPrimes = 64 // bits that a prime may exceed its share of the modulus by
)

// tooMuch returns why a key pair is too large to be parsed, or "".
func tooMuch(chain, key []byte) string {
	switch {
	case len(chain) > maxChainBytes:
		return fmt.Sprintf("%s has %d bytes, and at most %d are read", corev1.TLSCertKey, len(chain), maxChainBytes)
	case len(key) > maxKeyBytes:
		return fmt.Sprintf("%s has %d bytes, and at most %d are read", corev1.TLSPrivateKeyKey, len(key), maxKeyBytes)
	}
	if !blocks(chain, func(*pem.Block) {}) {
		return fmt.Sprintf("%s has more than %d PEM blocks", corev1.TLSCertKey, maxBlocks)
	}
	var wrong string
	few := blocks(key, func(b *pem.Block) {
		// tls.X509KeyPair uses the first key; to check the others too is harmless.
		if wrong == "" && strings.HasSuffix(b.Type, "PRIVATE KEY") {
			wrong = tooMuchRSA(b.Bytes)
		}
	})
	if !few {
		return fmt.Sprintf("%s has more than %d PEM blocks", corev1.TLSPrivateKeyKey, maxBlocks)
	}
	return wrong
}

// blocks calls f with each PEM block and reports whether there are at most maxBlocks.
func blocks(text []byte, f func(*pem.Block)) bool {
	for range maxBlocks {
		block, rest := pem.Decode(text)
		if block == nil {
			return true
		}
		f(block)
		text = rest
	}
	block, _ := pem.Decode(text)
	return block == nil
}

// pkcs1Key is RSAPrivateKey (RFC 8017 appendix A.1.2), parsed as leniently as crypto/x509 does.
type pkcs1Key struct {
	Version                           int
	Modulus                           *big.Int
	PublicExponent                    int
	PrivateExponent, Prime1, Prime2   *big.Int
	Exponent1, Exponent2, Coefficient *big.Int                                          `asn1:"optional"`
	Others                            []struct{ Prime, Exponent, Coefficient *big.Int } `asn1:"optional,omitempty"`
}

// pkcs8Key is PrivateKeyInfo (RFC 5208 section 5) without its attributes.
type pkcs8Key struct {
	Version   int
	Algorithm pkix.AlgorithmIdentifier
	Key       []byte
}

// tooMuchRSA returns why an RSA key is too large to be parsed, or "". It reads numbers without calculating with them. For other keys
// it returns "", because their lengths are fixed.
func tooMuchRSA(der []byte) string {
	var wrapped pkcs8Key
	if _, err := asn1.Unmarshal(der, &wrapped); err == nil {
		der = wrapped.Key
	}
	var k pkcs1Key
	if _, err := asn1.Unmarshal(der, &k); err != nil {
		return ""
	}
	bits := k.Modulus.BitLen()
	primes := []*big.Int{k.Prime1, k.Prime2}
	for _, o := range k.Others {
		primes = append(primes, o.Prime)
	}
	switch {
	case bits > maxModulusBits:
		return fmt.Sprintf("the modulus of the RSA key has %d bits, and at most %d are supported", bits, maxModulusBits)
	case k.PrivateExponent.BitLen() > bits:
		return "the private exponent of the RSA key is longer than its modulus"
	case len(primes) > maxPrimes:
		return fmt.Sprintf("the RSA key has %d primes, and at most %d are supported", len(primes), maxPrimes)
	case k.Exponent1 == nil || k.Exponent2 == nil || k.Coefficient == nil:
		// To compute them takes longer than all other checks together.
		return "the RSA key lacks the exponents and the coefficient that RFC 8017 asks for; write it anew, as with openssl rsa"
	}
	for _, n := range append(primes, k.Exponent1, k.Exponent2, k.Coefficient) {
		if n.BitLen() > bits/2+maxUnevenPrimes {
			return fmt.Sprintf("a prime of the RSA key, or what is derived from it, has %d bits, too many for a modulus of %d", n.BitLen(), bits)
		}
	}
	return ""
}
