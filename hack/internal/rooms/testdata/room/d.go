package room

func seven(_, _, _, _, _, _ int, f ...first) string { return f[0].next.last.text }
