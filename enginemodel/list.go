package enginemodel

// list is a doubly linked list through the sequences themselves: a queue that
// gives up any of its members at once, without allocating.
type list struct {
	front, back *sequence
	len         int
}

func (l *list) pushBack(s *sequence) {
	s.in, s.prev, s.next = l, l.back, nil
	if l.back != nil {
		l.back.next = s
	} else {
		l.front = s
	}
	l.back = s
	l.len++
}

func (l *list) pushFront(s *sequence) {
	s.in, s.prev, s.next = l, nil, l.front
	if l.front != nil {
		l.front.prev = s
	} else {
		l.back = s
	}
	l.front = s
	l.len++
}

func (l *list) popFront() *sequence {
	s := l.front
	if s != nil {
		l.remove(s)
	}
	return s
}

func (l *list) remove(s *sequence) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.front = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.back = s.prev
	}
	s.in, s.prev, s.next = nil, nil, nil
	l.len--
}
