package stress

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
)

// stampSize is how many bytes of a body carry one stamp.
const stampSize = 64

// What a body is.
const (
	ofRequest  = 'Q'
	ofResponse = 'R'
)

// content names the bytes of one body. Each stamp of it says whose it is and where it stands, so that no
// byte of another body, and no other part of the same one, can be taken for what belongs there.
type content struct {
	kind    byte
	id      uint64
	attempt uint32 // of a response: which attempt at the request it answers
}

func (c content) String() string { return fmt.Sprintf("%c%016x.%08x", c.kind, c.id, c.attempt) }

const hexDigits = "0123456789abcdef"

func putHex(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = hexDigits[n&15]
		n >>= 4
	}
}

// stamp writes the stamp number n.
func (c content) stamp(b *[stampSize]byte, n uint64) {
	b[0] = c.kind
	putHex(b[1:17], c.id)
	b[17] = '.'
	putHex(b[18:26], uint64(c.attempt))
	b[26] = '@'
	putHex(b[27:39], n)
	filler := (c.id ^ n*0x9e3779b97f4a7c15 ^ uint64(c.attempt)<<40) * 0xbf58476d1ce4e5b9
	for i := 39; i < stampSize-1; i++ {
		b[i] = 'a' + byte(filler>>59)%26
		filler = filler*6364136223846793005 + 1442695040888963407
	}
	b[stampSize-1] = '\n'
}

// bytes returns the n bytes that stand at an offset.
func (c content) bytes(at int64, n int) []byte {
	out := make([]byte, 0, n+2*stampSize)
	first := at / stampSize
	skip := int(at % stampSize)
	var b [stampSize]byte
	for k := uint64(first); len(out) < skip+n; k++ {
		c.stamp(&b, k)
		out = append(out, b[:]...)
	}
	return out[skip : skip+n]
}

// checker holds what comes of a body against what should come.
type checker struct {
	content
	at int64 // bytes seen
}

var anyStamp = regexp.MustCompile(`[QR]([0-9a-f]{16})\.[0-9a-f]{8}`)

// check checks the next bytes. foreign is the identity that was found in them, 0 where none can be read.
func (c *checker) check(p []byte) (foreign uint64, err error) {
	want := c.bytes(c.at, len(p))
	if bytes.Equal(want, p) {
		c.at += int64(len(p))
		return 0, nil
	}
	i := 0
	for want[i] == p[i] {
		i++
	}
	from, to := max(0, i-stampSize), min(len(p), i+2*stampSize)
	for _, m := range anyStamp.FindAllSubmatch(p[from:], 64) {
		id, _ := strconv.ParseUint(string(m[1]), 16, 64)
		if foreign == 0 || foreign == c.id {
			foreign = id
		}
	}
	return foreign, fmt.Errorf("body of %v has wrong bytes at offset %d: got %q, want %q", c.content, c.at+int64(i), p[from:to], want[from:to])
}

// dice makes one participant's random choices.
type dice struct{ *rand.Rand }

func newDice(seed, participant uint64) dice { return dice{rand.New(rand.NewPCG(seed, participant))} }

// oneIn is true once in n times.
func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

// of chooses.
func of[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }

// size chooses a length of a body: mostly small, with those among the large ones that are near the limits of
// buffers, windows and of what is kept to be sent again.
func (d dice) size() int {
	switch d.IntN(12) {
	case 0:
		return 0
	case 1:
		return 1
	case 2, 3, 4, 5:
		return d.IntN(300)
	case 6, 7, 8:
		return d.IntN(8 << 10)
	case 9:
		return (64 << 10) - 2 + d.IntN(5)
	case 10:
		return d.IntN(100 << 10)
	}
	return d.IntN(400 << 10)
}

// piece chooses how much of n bytes is sent at once.
func (d dice) piece(n int) int {
	if n <= 1 || d.oneIn(3) {
		return n
	}
	return 1 + d.IntN(min(n, 1+d.IntN(40<<10)))
}
