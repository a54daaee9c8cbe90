package revocation

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"iter"
)

// Blocks iterates over the PEM blocks of a text, whose name in errors is field. Text outside of blocks is allowed, but a block that
// cannot be decoded is an error: pem.Decode skips it like such text, and then less would be trusted or revoked than the text says.
// This happens if two files are joined of which the first does not end with a newline, if a line is damaged, or if the end is missing.
// A block of another type, such as a signature, is skipped if it cannot be decoded.
func Blocks(field, text string) iter.Seq2[*pem.Block, error] {
	return func(yield func(*pem.Block, error) bool) {
		n := 1
		for rest := []byte(text); ; {
			block, after := pem.Decode(rest)
			skipped := rest
			if block != nil {
				skipped = rest[:len(rest)-len(after)]
				skipped = skipped[:bytes.LastIndex(skipped, begin)]
			}
			for range begins(skipped) {
				if !yield(nil, fmt.Errorf("PEM block %d of %s: its BEGIN and END are not on lines of their own, or what is between them is not base64", n, field)) {
					return
				}
				n++
			}
			if block == nil || !yield(block, nil) {
				return
			}
			n++
			rest = after
		}
	}
}

var (
	begin  = []byte("-----BEGIN ")
	dashes = []byte("-----")
)

// begins returns the number of blocks with certificates or revocation lists that begin in a text: at the start of a line, or after
// the end of another block. After other text, such as a comment sign, no block begins.
func begins(text []byte) (n int) {
	for {
		i := bytes.Index(text, begin)
		if i < 0 {
			return n
		}
		// Some editors write a byte order mark at the start of a file.
		before := bytes.TrimRight(text[bytes.LastIndexByte(text[:i], '\n')+1:i], " \t\ufeff")
		if len(before) == 0 && !ofOtherType(text[i+len(begin):]) || bytes.HasSuffix(before, dashes) {
			n++
		}
		text = text[i+len(begin)-2:] // not at the start of a line
	}
}

// ofOtherType reports whether a line that begins a block, of which text follows "BEGIN ", is complete and names neither a certificate
// nor a revocation list. If it is damaged, any type is possible.
func ofOtherType(text []byte) bool {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	label, complete := bytes.CutSuffix(bytes.TrimRight(line, " \t\r"), dashes)
	if !complete || bytes.Contains(label, dashes) {
		return false
	}
	switch string(label) {
	case "CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CRL":
		return false
	}
	return true
}
