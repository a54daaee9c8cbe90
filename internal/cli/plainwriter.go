package cli

import "io"

// plainWriter writes text for people. Names, messages and files that others have written may have characters by which a terminal does something else than to show them;
// they become "?". Line feeds and tabs stay, so that what prints a line must see to it that the line is one.
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

// controlAt returns how many bytes the control character has that b begins with, 0 where it does not begin with one: those of ASCII, and those of Latin-1 in UTF-8.
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
