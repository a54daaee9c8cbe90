package files
import ("testing";"path/filepath")
func BenchmarkProf(b *testing.B){
	dir := b.TempDir()
	write(b, filepath.Join(dir, "routes.yaml"), string(manyRoutes(300, unedited)))
	s := source(b, dir); s.Load()
	b.ReportAllocs()
	for b.Loop(){ s.Load() }
}
