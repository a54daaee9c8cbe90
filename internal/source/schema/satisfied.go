package schema

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

const (
	// maxRemembered is how many values are remembered of a schema; maxEncoded is how long one of them may be, encoded.
	maxRemembered = 4096
	maxEncoded    = 512
	// maxFields is how many fields a map may have to be encoded.
	maxFields = 16
)

// satisfiedValues remembers values for which all rules hold, and what finding out has cost. Thousands of routes have the same parentRefs, matches and
// filters, and a comparison costs far less than the rules. A rule sees nothing but the value. It is safe for concurrent use.
type satisfiedValues struct {
	mu    sync.Mutex
	costs map[satisfiedValue]int64
}

type satisfiedValue struct {
	rules   *celRules
	encoded string // by appendEncoded
}

// satisfied returns what it has cost to find out that all rules hold, if that is remembered.
func (s *satisfiedValues) satisfied(r *celRules, encoded []byte) (cost int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost, known = s.costs[satisfiedValue{r, string(encoded)}]
	return cost, known
}

func (s *satisfiedValues) remember(r *celRules, encoded []byte, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.costs == nil || len(s.costs) >= maxRemembered { // what is frequent comes again soon
		s.costs = map[satisfiedValue]int64{}
	}
	s.costs[satisfiedValue{r, string(encoded)}] = cost
}

// appendEncoded appends a value so that no two different ones are the same; false where it is too large, or not of a type that objects have.
func appendEncoded(b []byte, value any) (_ []byte, ok bool) {
	switch value := value.(type) {
	case nil:
		b = append(b, 'n')
	case bool:
		if value {
			b = append(b, 't')
		} else {
			b = append(b, 'f')
		}
	case int64:
		b = binary.BigEndian.AppendUint64(append(b, 'i'), uint64(value)) //nolint:gosec // every one is another
	case float64:
		b = binary.BigEndian.AppendUint64(append(b, 'd'), math.Float64bits(value))
	case string:
		b, ok = appendString(b, value)
		return b, ok
	case []any:
		if len(b)+len(value) > maxEncoded {
			return b, false
		}
		b = binary.AppendUvarint(append(b, 'l'), uint64(len(value)))
		for _, v := range value {
			if b, ok = appendEncoded(b, v); !ok {
				return b, false
			}
		}
	case map[string]any:
		return appendMap(b, value)
	default:
		return b, false
	}
	return b, len(b) <= maxEncoded
}

func appendString(b []byte, s string) (_ []byte, ok bool) {
	if len(b)+len(s) > maxEncoded {
		return b, false
	}
	return append(binary.AppendUvarint(append(b, 's'), uint64(len(s))), s...), true
}

func appendMap(b []byte, m map[string]any) (_ []byte, ok bool) {
	if len(m) > maxFields {
		return b, false
	}
	var room [maxFields]string
	names := room[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	b = binary.AppendUvarint(append(b, 'm'), uint64(len(m)))
	for _, name := range names {
		if b, ok = appendString(b, name); !ok {
			return b, false
		}
		if b, ok = appendEncoded(b, m[name]); !ok {
			return b, false
		}
	}
	return b, len(b) <= maxEncoded
}
