package translate_test

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/translate"
)

// FuzzTranslate gives any objects that can be decoded to a Translator: whatever their
// fields hold, and even where no API server would have let them in, nothing may panic,
// config refers to nothing that it lacks, and deleting all leaves nothing.
func FuzzTranslate(f *testing.F) {
	paths, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, topic := range paths {
		cases, _ := os.ReadDir("testdata/" + topic.Name())
		for _, c := range cases {
			if data, err := os.ReadFile("testdata/" + topic.Name() + "/" + c.Name()); err == nil && strings.HasSuffix(c.Name(), ".yaml") {
				text, _, _ := strings.Cut(string(data), "\n---\nconfig:")
				f.Add([]byte(text))
			}
		}
	}
	class := "kind: GatewayClass\nmetadata: {name: moongate}\nspec: {controllerName: " + controllerName + "}"
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, o := range []translate.Options{options, clusterOptions} {
			comeAndGo(t, newWorldWith(o), append(strings.Split(string(data), "\n---\n"), class))
		}
	})
}

// comeAndGo takes in every object that can be decoded, then deletes all.
func comeAndGo(t *testing.T, w *world, docs []string) {
	var objects []metav1.Object
	for _, doc := range docs {
		var head struct{ Kind string }
		if yaml.Unmarshal([]byte(doc), &head) != nil || kinds[head.Kind] == nil {
			continue
		}
		o := kinds[head.Kind]()
		if yaml.Unmarshal([]byte(doc), o) == nil {
			w.Upsert(o)
			objects = append(objects, o)
		}
	}
	w.commit(t)
	w.print(t)
	for _, o := range objects {
		w.Delete(kindOf(o), o.GetNamespace(), o.GetName())
	}
	w.commit(t)
	if len(w.config)+len(w.statuses)+len(w.specs)+len(w.needed) != 0 {
		t.Errorf("after deleting all, config %v, statuses %v, specs %v and requests %v are left", w.config, w.statuses, w.specs, w.needed)
	}
}
