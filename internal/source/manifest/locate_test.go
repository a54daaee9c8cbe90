package manifest

import "testing"

func TestLocate(t *testing.T) {
	const text = `# a comment
kind: A
spec:
  list:
  - name: x
    port: 1
  - {name: y,
     port: 2}
---

kind: B
spec: {name: z}
--- # broken
kind: [
---
{"kind": "C",
 "spec": {
  "name": "c"}}
`
	for _, c := range []struct {
		line int
		path string
		want int
	}{
		{2, "spec.list[0].port", 6}, {2, "spec.list[1].port", 8}, {2, "spec.list[2].port", 4}, {2, "spec.absent", 3}, {2, "", 2},
		{11, "spec.name", 12}, {16, "spec.name", 18}, {3, "spec.name", 3}, {99, "spec", 99},
	} {
		if got := Locate([]byte(text), c.line, c.path); got != c.want {
			t.Errorf("document at line %d, %q: line %d, want %d", c.line, c.path, got, c.want)
		}
	}
}
