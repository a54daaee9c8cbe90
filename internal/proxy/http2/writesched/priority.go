package writesched

// Prioritise applies a Priority field value (RFC 9218 section 4). Unknown members are skipped. A stream without the
// field takes turns with others; one with the field but without "i" is sent as a whole.
func (e *Entry[S]) Prioritise(value []byte) {
	urgency, whole := uint8(DefaultUrgency), true
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
	e.urgency, e.whole = urgency, whole
}
