package deliver

import (
	"maps"
	"time"
)

const (
	// refusedPause is how long nothing is sent to a proxy that has refused a generation. It doubles with each refusal of the same one,
	// up to maxRefusedPause: everything is sent each time, which is much work for both ends and usually in vain.
	refusedPause    = 5 * time.Second
	maxRefusedPause = 5 * time.Minute
)

// refusing are the pods that refuse their configuration. It outlasts their streams, because a proxy ends its stream when it has refused.
// The zero value is ready.
type refusing struct{ of map[podKey]refusedGeneration }

type refusedGeneration struct {
	generation uint64
	at         time.Time // when it was refused last
	pause      time.Duration
	why        string
}

// note records a refusal.
func (f *refusing) note(k podKey, generation uint64, why string, now time.Time) {
	maps.DeleteFunc(f.of, func(_ podKey, g refusedGeneration) bool { return now.Sub(g.at) >= 2*maxRefusedPause }) // of pods that are gone
	if f.of == nil {
		f.of = map[podKey]refusedGeneration{}
	}
	pause := refusedPause
	if before, ok := f.of[k]; ok && before.generation == generation {
		pause = min(2*before.pause, maxRefusedPause)
	}
	f.of[k] = refusedGeneration{generation, now, pause, why}
}

// wait returns how long a generation must not be sent yet. A new one may be what the proxy accepts, so it waits only for refusedPause.
func (f *refusing) wait(k podKey, generation uint64, now time.Time) time.Duration {
	g, ok := f.of[k]
	if !ok {
		return 0
	}
	if g.generation != generation {
		g.pause = refusedPause
	}
	return g.pause - now.Sub(g.at)
}

// why returns why a pod has refused its configuration; "" if it has not.
func (f *refusing) why(k podKey) string { return f.of[k].why }

// forget is called when a pod has acknowledged a generation.
func (f *refusing) forget(k podKey) { delete(f.of, k) }
