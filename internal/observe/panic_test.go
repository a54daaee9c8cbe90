package observe

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPanicsBeginAtZero: there is a counter for each place that names itself where it recovers, before anything has panicked there. An alert would
// not see the first panic of a counter that begins with it.
func TestPanicsBeginAtZero(t *testing.T) {
	call := regexp.MustCompile(`(?:[pP]anicked|recovered)\("([^"]*)", ?v\)|recovered\("([^"]*)"\)`)
	var places []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range call.FindAllSubmatch(text, -1) {
			places = append(places, string(found[1])+string(found[2]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(places)
	if places = slices.Compact(places); !slices.Equal(places, panicPlaces) {
		t.Errorf("the places that call Panicked are %q, and panicPlaces %q", places, panicPlaces)
	}
	m, _ := testMetrics(MetricsOptions{})
	got := series(t, m, namePanics)
	for _, place := range panicPlaces {
		if n, is := got["where="+place]; !is || n != 0 {
			t.Errorf("at first there are %v panics of %q, want a counter of 0", n, place)
		}
	}
	m.Panicked("exchange")
	if n := series(t, m, namePanics)["where=exchange"]; n != 1 {
		t.Errorf("then there are %v", n)
	}
}
