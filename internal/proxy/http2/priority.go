package http2

const defaultUrgency = 3

// prioritise takes in a Priority field value (RFC 9218 section 4). What is not understood is
// skipped. A stream that says nothing takes turns with others, one that says something
// without "i" is sent as a whole.
func (s *Stream) prioritise(value []byte) {
	urgency, whole := uint8(defaultUrgency), true
	for len(value) > 0 {
		member := value
		for i, c := range value {
			if c == ',' {
				member = value[:i]
				break
			}
		}
		value = value[min(len(member)+1, len(value)):]
		for len(member) > 0 && (member[0] == ' ' || member[0] == '\t') {
			member = member[1:]
		}
		for n := len(member); n > 0 && (member[n-1] == ' ' || member[n-1] == '\t'); n = len(member) {
			member = member[:n-1]
		}
		switch {
		case len(member) == 3 && member[0] == 'u' && member[1] == '=' && '0' <= member[2] && member[2] <= '7':
			urgency = member[2] - '0'
		case string(member) == "i", string(member) == "i=?1":
			whole = false
		}
	}
	s.urgency, s.whole = urgency, whole
}

// reprioritise moves the stream to where a new priority wants it.
func (q *queue) reprioritise(s *Stream, value []byte) {
	s.prioritise(value)
	if s.in != nil && s.in != &q.starved {
		s.leave()
		q.add(s)
	}
}
