package incremental

// Held is how much a collection and an index over it keep for their readers. Index keys that are counted are buckets, too.
func Held[K Key[K], V any, IK comparable, K2 Key[K2], V2 any](c *Collection[K, V], ix *Index[IK, K2, V2], popular K) (slots, buckets, readers int) {
	if s := c.slots.Get(popular); s != nil && s.watch != nil {
		readers = len(s.watch.readers)
	}
	return c.slots.Len(), ix.buckets.Len() + len(ix.counted), readers
}
