package compression

import (
	"bytes"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// full is the weight of what a client wants most; weights are in thousandths (RFC 9110 section 12.4.2).
const full = 1000

// Accepted is what a client says of encodings. The zero value is that it says nothing.
type Accepted struct {
	// listed are the weights of encodings that are named, and any that of all others, each plus 1; 0 is that there is none.
	listed [encodings]uint16
	any    uint16
}

// ParseAccepted reads the fields Accept-Encoding of a request (RFC 9110 section 12.5.3). A member that is malformed, or names an encoding that is not known
// here, is as if it were not there; of several weights of one encoding the least counts.
func ParseAccepted(header *message.Fields) (a Accepted) {
	for i := range header.Len() {
		if f := header.At(i); message.EqualFold(f.Name, "accept-encoding") {
			a.add(f.Value)
		}
	}
	return a
}

// add reads the value of one field.
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

// of is where the weight of what is named stands, nil where that is not known.
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

// trim removes the white space that may stand around the parts of a list.
func trim(b []byte) []byte { return bytes.Trim(b, " \t") }

// parseWeight reads "q=" and a number from 0 to 1 with three decimals at most, in thousandths.
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

// weight is how much the client wants an encoding; 0 is not at all.
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

// With returns the set with one more.
func (s Set) With(e Encoding) Set { return s | 1<<e }

// Has reports whether an encoding is in the set.
func (s Set) Has(e Encoding) bool { return s&(1<<e) != 0 }

// Choose returns which of a policy's encodings the client wants most, and of equals the one that the policy prefers; those that cannot be had do not count. ok is false where the body
// is to stay as it is: the client says nothing, wants none of them, or wants that more.
func (a *Accepted) Choose(p Policy, unavailable Set) (o Offer, ok bool) {
	most := uint16(0)
	for _, offer := range p {
		if w := a.weight(offer.Encoding); w > most && !unavailable.Has(offer.Encoding) {
			o, most = offer, w
		}
	}
	return o, most > 0 && most >= a.weight(Identity)
}
