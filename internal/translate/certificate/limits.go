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

// Whoever may write a Secret that a listener refers to decides what is parsed here, and Commit waits for
// it. The time that crypto/x509 takes grows with the cube of an RSA prime and has no bound of its own.
// Longer moduli than these are refused by crypto/tls clients too, and each handshake pays for them.
const (
	maxChainBytes   = 128 << 10
	maxKeyBytes     = 32 << 10
	maxBlocks       = 16 // PEM blocks in each of both
	maxModulusBits  = 8192
	maxPrimes       = 5  // as OpenSSL
	maxUnevenPrimes = 64 // bits that a prime may have beyond its share of the modulus
)

// tooMuch reports why a key pair is not parsed at all, or "".
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
		// tls.X509KeyPair uses the first one; the others do no harm to be looked at.
		if wrong == "" && strings.HasSuffix(b.Type, "PRIVATE KEY") {
			wrong = tooMuchRSA(b.Bytes)
		}
	})
	if !few {
		return fmt.Sprintf("%s has more than %d PEM blocks", corev1.TLSPrivateKeyKey, maxBlocks)
	}
	return wrong
}

// blocks calls f with each PEM block and reports whether there are few enough.
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

// pkcs1Key is RSAPrivateKey (RFC 8017 appendix A.1.2), as lenient as crypto/x509 reads it.
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

// tooMuchRSA reports why an RSA key is not parsed, or "". It reads numbers and calculates nothing with
// them; of any other key it says nothing: the lengths of those are fixed.
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
		// To calculate them costs more than all other checks together.
		return "the RSA key lacks the exponents and the coefficient that RFC 8017 asks for; write it anew, as with openssl rsa"
	}
	for _, n := range append(primes, k.Exponent1, k.Exponent2, k.Coefficient) {
		if n.BitLen() > bits/2+maxUnevenPrimes {
			return fmt.Sprintf("a prime of the RSA key, or what is derived from it, has %d bits, too many for a modulus of %d", n.BitLen(), bits)
		}
	}
	return ""
}
