package room

type third struct{ text string }

func (third) six(a, b, c, d, e int, f first) string { return f.name() }

func (third) five(a, b, c, d, e int) {}
