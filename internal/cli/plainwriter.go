package cli

import "io"

// plainWriter writes text for a terminal. Names, messages and files of others may contain control characters; it replaces them with
// "?". Line feeds and tabs are kept, so a caller that prints one line must make sure that the text is one line.
type plainWriter struct{ w io.Writer }

// Write implements io.Writer.
func (p plainWriter) Write(b []byte) (int, error) {
	clean := b
	for i := 0; i < len(b); i++ {
		n := controlAt(b[i:])
		if n == 0 {
			continue
		}
		if &clean[0] == &b[0] {
			clean = append([]byte(nil), b...)
		}
		for j := range n {
			clean[i+j] = '?'
		}
		i += n - 1
	}
	if _, err := p.w.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}

// controlAt returns the length in bytes of the control character with which b begins, 0 if it begins with none: those of ASCII, and
// those of Latin-1 in UTF-8.
func controlAt(b []byte) int {
	switch c := b[0]; {
	case c == '\n', c == '\t':
		return 0
	case c < ' ', c == 0x7f:
		return 1
	case c == 0xc2 && len(b) > 1 && b[1] >= 0x80 && b[1] < 0xa0:
		return 2
	}
	return 0
}
