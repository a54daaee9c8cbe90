package resp

import (
	"errors"
	"fmt"
)

// Bounds of an answer. The answers to commands of this module are far smaller.
const (
	maxDepth  = 8
	maxBytes  = 1 << 20 // of one answer
	maxValues = 1 << 13 // sum of the announced sizes of aggregates in one answer
	maxLine   = 1 << 12 // of an error or a simple string
	maxDigits = 19      // of a number
)

var (
	errTooLarge = errors.New("a value is too large")
	errLineEnd  = errors.New("a value does not end with CR LF")
	errNumber   = errors.New("a number is malformed")
	errTooDeep  = errors.New("a value has too many levels")
)

// scanner parses a stream of RESP values, versions 2 and 3. It accepts the types that commands consist of, and those of
// the answers to them: strings, errors, numbers, null, booleans, arrays and maps with announced lengths. The zero value
// is before the first value.
type scanner struct {
	unbounded bool // values may be of any size
	kind      byte // of the value whose line is being read; 0 between values
	line      int  // bytes of the line after kind
	number    int64
	negative  bool
	cr        bool  // the last byte of the line was a CR
	skip      int64 // bytes of a string still to come, including its end
	bytes     int64 // of the current answer
	values    int64 // announced by the aggregates of the current answer
	left      [maxDepth]int64
	depth     int
}

// scan parses more of the stream, and returns how many values have ended in it.
func (s *scanner) scan(b []byte) (whole int, err error) {
	for len(b) > 0 {
		if s.skip > 0 {
			n := min(s.skip, int64(len(b)))
			for i, c := range b[:n] { // the last two bytes are the end
				switch s.skip - int64(i) {
				case 2:
					if c != '\r' {
						return whole, errLineEnd
					}
				case 1:
					if c != '\n' {
						return whole, errLineEnd
					}
				}
			}
			if s.skip -= n; s.skip == 0 {
				whole += s.ended()
			}
			b = b[n:]
			continue
		}
		c := b[0]
		b = b[1:]
		if s.kind == 0 {
			if err := s.begin(c); err != nil {
				return whole, err
			}
			continue
		}
		done, err := s.take(c)
		if err != nil {
			return whole, err
		}
		if done {
			n, err := s.headed()
			if err != nil {
				return whole, err
			}
			whole += n
		}
	}
	return whole, nil
}

// begin handles the first byte of a value.
func (s *scanner) begin(c byte) error {
	switch c {
	case '$', '+', '-', ':', '_', ',', '#', '!', '=', '(', '*', '%', '~':
	default: // pushed messages, attributes and values without announced length are never requested
		return fmt.Errorf("no value begins with byte %#x", c)
	}
	s.kind, s.line, s.number, s.negative, s.cr = c, 0, 0, false, false
	return s.grow(1)
}

// grow counts bytes of an answer.
func (s *scanner) grow(n int64) error {
	if s.bytes += n; s.bytes > maxBytes && !s.unbounded {
		return errTooLarge
	}
	return nil
}

// take handles a byte of a line. done means that it was the last one.
func (s *scanner) take(c byte) (done bool, err error) {
	if err := s.grow(1); err != nil {
		return false, err
	}
	switch {
	case s.cr:
		if c != '\n' {
			return false, errLineEnd
		}
		return true, nil
	case c == '\r':
		s.cr = true
		return false, nil
	case c == '\n':
		return false, errLineEnd
	}
	s.line++
	switch s.kind {
	case '+', '-', ',', '(':
		if s.line > maxLine {
			return false, errTooLarge
		}
	case '_':
		return false, errNumber
	case '#':
		if s.line > 1 || c != 't' && c != 'f' {
			return false, errNumber
		}
	default:
		switch {
		case c == '-' && s.line == 1:
			s.negative = true
		case c < '0' || c > '9' || s.line > maxDigits && !(s.negative && s.line == maxDigits+1):
			return false, errNumber
		default:
			s.number = s.number*10 + int64(c-'0') // the client checks whether an integer fits; a length is bounded before
			if s.kind != ':' && s.number > maxBytes && !s.unbounded {
				return false, errTooLarge
			}
		}
	}
	return false, nil
}

// headed handles the complete line of a value, and returns how many values have ended with it.
func (s *scanner) headed() (whole int, err error) {
	kind, n := s.kind, s.number
	s.kind = 0
	switch kind {
	case '+', '-', '_', ',', '(':
		return s.ended(), nil
	case '#':
		if s.line != 1 {
			return 0, errNumber
		}
		return s.ended(), nil
	}
	if s.line == 0 || s.negative && s.line == 1 {
		return 0, errNumber
	}
	if kind == ':' {
		return s.ended(), nil
	}
	if s.negative { // null in version 2
		if n != 1 || kind != '$' && kind != '*' {
			return 0, errNumber
		}
		return s.ended(), nil
	}
	if kind == '%' {
		n *= 2
	}
	if kind == '!' && n > maxLine && !s.unbounded {
		return 0, errTooLarge
	}
	switch kind {
	case '$', '!', '=':
		s.skip = n + 2
		return 0, s.grow(s.skip)
	}
	if s.values += n; s.values > maxValues && !s.unbounded {
		return 0, errTooLarge
	}
	if n == 0 {
		return s.ended(), nil
	}
	if s.depth == maxDepth {
		return 0, errTooDeep
	}
	s.left[s.depth] = n
	s.depth++
	return 0, nil
}

// ended handles the end of a value, which may also be the end of the values that contain it. It returns 1 if an answer
// has ended.
func (s *scanner) ended() int {
	for s.depth > 0 {
		if s.left[s.depth-1]--; s.left[s.depth-1] > 0 {
			return 0
		}
		s.depth--
	}
	s.bytes, s.values = 0, 0
	return 1
}

// begun reports whether a value has begun and not ended.
func (s *scanner) begun() bool { return s.kind != 0 || s.skip > 0 || s.depth > 0 }
