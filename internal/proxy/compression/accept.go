package compression

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// full is the greatest weight; weights are in thousandths (RFC 9110 section 12.4.2).
const full = 1000

// Accepted is the Accept-Encoding of a client. The zero value means that it has sent none.
type Accepted struct {
	// listed are the weights of the named encodings, and any that of all others, each plus 1; 0 means that there is
	// none.
	listed [encodings]uint16
	any    uint16
}

// ParseAccepted parses the Accept-Encoding fields of a request (RFC 9110 section 12.5.3). It ignores members that are
// malformed or name an unknown encoding. If an encoding has several weights, the least one counts.
func ParseAccepted(header *message.Fields) (a Accepted) {
	for i := range header.Len() {
		if f := header.At(i); message.EqualFold(f.Name, "accept-encoding") {
			a.add(f.Value)
		}
	}
	return a
}

// add parses the value of one field.
func (a *Accepted) add(list []byte) {
	for len(list) > 0 {
		var member []byte
		member, list, _ = bytes.Cut(list, []byte(","))
		name, weight, weighted := bytes.Cut(member, []byte(";"))
		w := uint16(full)
		if weighted {
			var ok bool
			if w, ok = parseWeight(trim(weight)); !ok {
				continue
			}
		}
		if of := a.of(trim(name)); of != nil && (*of == 0 || w+1 < *of) {
			*of = w + 1
		}
	}
}

// of returns the weight of a named encoding, nil if it is unknown.
func (a *Accepted) of(name []byte) *uint16 {
	if len(name) == 1 && name[0] == '*' {
		return &a.any
	}
	for e, token := range tokens {
		if message.EqualFold(name, token) {
			return &a.listed[e]
		}
	}
	if message.EqualFold(name, "x-gzip") { // RFC 9110 section 8.4.1.3
		return &a.listed[Gzip]
	}
	return nil
}

// trim removes the white space that is allowed around the parts of a list.
func trim(b []byte) []byte { return bytes.Trim(b, " \t") }

// parseWeight parses "q=" and a number from 0 to 1 with at most three decimals, in thousandths.
func parseWeight(b []byte) (weight uint16, ok bool) {
	if len(b) < 3 || len(b) > 7 || b[0] != 'q' && b[0] != 'Q' || b[1] != '=' || b[2] != '0' && b[2] != '1' {
		return 0, false
	}
	weight = uint16(b[2]-'0') * full
	if len(b) == 3 {
		return weight, true
	}
	if b[3] != '.' {
		return 0, false
	}
	unit := uint16(100)
	for _, c := range b[4:] {
		if c < '0' || c > '9' {
			return 0, false
		}
		weight += uint16(c-'0') * unit
		unit /= 10
	}
	return weight, weight <= full
}

// weight returns how much the client prefers an encoding; 0 means not acceptable.
func (a *Accepted) weight(e Encoding) uint16 {
	switch {
	case a.listed[e] > 0:
		return a.listed[e] - 1
	case a.any > 0:
		return a.any - 1
	}
	return 0
}

// Set is a set of encodings.
type Set uint8

// With returns the set with e added.
func (s Set) With(e Encoding) Set { return s | 1<<e }

// Has reports whether e is in the set.
func (s Set) Has(e Encoding) bool { return s&(1<<e) != 0 }

// Choose returns the encoding of a policy that the client prefers most, and of equals the one that the policy prefers,
// except those that are unavailable. ok is false if the body must not be encoded: the client has sent no preference,
// accepts none of them, or prefers identity.
func (a *Accepted) Choose(p Policy, unavailable Set) (o Offer, ok bool) {
	most := uint16(0)
	for _, offer := range p {
		if w := a.weight(offer.Encoding); w > most && !unavailable.Has(offer.Encoding) {
			o, most = offer, w
		}
	}
	return o, most > 0 && most >= a.weight(Identity)
}
