package room

type (
	second struct{ last third }
	alias  = second
)

func (s alias) name() string { return s.last.text }
