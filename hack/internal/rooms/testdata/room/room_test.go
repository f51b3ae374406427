package room

type counted struct{ never first }
