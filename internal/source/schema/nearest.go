package schema

import (
	"slices"
	"strings"
)

// Nearest returns the candidate that is most similar to name, or "" if none is similar: it differs in case only, or by a few
// letters, or is the only one that contains name.
func Nearest(name string, candidates []string) string {
	if near := nearest(name, candidates); near != "" || len(name) < 4 {
		return near
	}
	var containing []string
	for _, c := range candidates {
		if strings.Contains(strings.ToLower(c), strings.ToLower(name)) {
			containing = append(containing, c)
		}
	}
	if len(containing) == 1 {
		return containing[0]
	}
	return ""
}

func nearest(name string, candidates []string) string {
	for _, same := range []func(string) string{strings.ToLower, singular} {
		for _, c := range slices.Sorted(slices.Values(candidates)) {
			if same(c) == same(name) {
				return c
			}
		}
	}
	limit := max(1, min(3, len(name)/3))
	best := ""
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(name), strings.ToLower(c), limit); d <= limit && (best == "" || d < limit) {
			best, limit = c, d
		}
	}
	return best
}

// singular returns a word in lower case without its plural ending: retry for retries.
func singular(word string) string {
	word = strings.ToLower(word)
	if stem, ok := strings.CutSuffix(word, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(word, "s")
}

// distance returns the number of letters to insert, delete, replace or swap with a neighbor to turn a into b; more than limit is
// returned as limit+1.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit || len(a) > 64 || len(b) > 64 {
		return limit + 1
	}
	var rows [3][65]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// sameStart returns the only candidate that begins like name, with at least four letters, regardless of case and of word separators:
// LeastRequest for LEAST_CONN. It returns "" if there is none or several.
func sameStart(name string, candidates []string) string {
	const enough = 4
	plain := strings.NewReplacer("-", "", "_", "", " ", "")
	start := strings.ToLower(plain.Replace(name))
	if len(start) < enough {
		return ""
	}
	found := ""
	for _, c := range candidates {
		if strings.HasPrefix(strings.ToLower(plain.Replace(c)), start[:enough]) {
			if found != "" {
				return ""
			}
			found = c
		}
	}
	return found
}
