package cli

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/config"
)

// withoutShifts returns two versions of a resource without the indices of rules that are the same in both at another index, because a
// rule was inserted before them or removed.
func withoutShifts(before, after *config.Resource) (_, _ *config.Resource) {
	if before.GetRoute() == nil || after.GetRoute() == nil {
		return before, after
	}
	before, after = proto.CloneOf(before), proto.CloneOf(after)
	for old, rule := range sameRules(before.GetRoute().Rules, after.GetRoute().Rules) {
		if old.Index != rule.Index {
			old.Index, rule.Index = 0, 0
		}
	}
	return before, after
}

// sameRules yields the pairs of rules that are equal except for their index. Those with the same index come first, so that of several
// equal rules each has its own.
func sameRules(before, after []*config.Rule) func(yield func(old, rule *config.Rule) bool) {
	return func(yield func(old, rule *config.Rule) bool) {
		rest := slices.Clone(after)
		pair := func(old *config.Rule, fits func(rule *config.Rule) bool) (paired bool) {
			i := slices.IndexFunc(rest, fits)
			if i >= 0 {
				yield(old, rest[i])
				rest = slices.Delete(rest, i, i+1)
			}
			return i >= 0
		}
		var moved []*config.Rule
		for _, old := range before {
			if !pair(old, func(rule *config.Rule) bool { return proto.Equal(old, rule) }) {
				moved = append(moved, old)
			}
		}
		for _, old := range moved {
			pair(old, func(rule *config.Rule) bool {
				shifted := proto.CloneOf(rule)
				shifted.Index = old.Index
				return proto.Equal(old, shifted)
			})
		}
	}
}

// ruleShift tells which rule of a route was which before an edit.
type ruleShift struct {
	was map[int]int // by index after the edit
	old map[int]bool
}

// shiftOf pairs rules of a route before and after an edit: those with the same name, then those with the same content.
func shiftOf(before, after metav1.Object) ruleShift {
	old, rules := rulesOf(before), rulesOf(after)
	s := ruleShift{map[int]int{}, map[int]bool{}}
	pair := func(fits func(old, rule specRule) bool) {
		for i := range rules {
			if _, paired := s.was[i]; paired {
				continue
			}
			for j := range old {
				if !s.old[j] && fits(old[j], rules[i]) {
					s.was[i], s.old[j] = j, true
					break
				}
			}
		}
	}
	pair(func(old, rule specRule) bool { return rule.name != "" && old.name == rule.name })
	pair(func(old, rule specRule) bool { return old.text == rule.text })
	return s
}

type specRule struct{ name, text string }

func rulesOf(o metav1.Object) (rules []specRule) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	var route struct {
		Spec struct {
			Rules []json.RawMessage `json:"rules"`
		} `json:"spec"`
	}
	if json.Unmarshal(text, &route) != nil {
		return nil // a policy whose rules are another thing
	}
	for _, raw := range route.Spec.Rules {
		var named struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &named) != nil {
			return nil
		}
		rules = append(rules, specRule{named.Name, string(raw)})
	}
	return rules
}

// ruleIndices matches where a message names rules by their index.
var ruleIndices = regexp.MustCompile(`\bspec\.rules\[\d+\]|\b[Rr]ule \d+(?:, \d+)*`)

var number = regexp.MustCompile(`\d+`)

// asBefore returns a message about a route with the indices that its rules had before the edit.
func (s ruleShift) asBefore(message string) string {
	return ruleIndices.ReplaceAllStringFunc(message, func(indices string) string {
		return number.ReplaceAllStringFunc(indices, func(digits string) string {
			i, err := strconv.Atoi(digits)
			if was, paired := s.was[i]; err == nil && paired {
				return strconv.Itoa(was)
			}
			if s.old[i] { // another rule had this index
				return "new " + digits
			}
			return digits
		})
	})
}
