package audit

const (
	maxActor  = 64 << 10 // bytes of all texts of an actor
	maxName   = 4 << 10  // of a user
	maxAgent  = 4 << 10  // the API server cuts after 1,024 bytes, of which each may become three
	perString = 8        // what an element of a list counts in addition to its text
	// deniedAddresses is how many source addresses of a denied request are kept, the last ones: a client without credentials can send thousands in
	// X-Forwarded-For.
	deniedAddresses = 4
)

// budget bounds the texts of an actor.
type budget struct {
	left int
	cut  bool
}

// text returns a text of at most limit bytes.
func (b *budget) text(v value, limit int) (string, error) {
	s, cut, err := v.cutText(min(limit, b.left))
	b.left -= len(s)
	b.cut = b.cut || cut
	return s, err
}

// list returns the elements up to the one for which nothing is left.
func (b *budget) list(v value) (list []string, err error) {
	err = v.elements(func(v value) (err error) {
		list, err = b.add(list, v, maxActor)
		return err
	})
	return list, err
}

// add appends an element of at most limit bytes, unless nothing is left for it.
func (b *budget) add(list []string, v value, limit int) ([]string, error) {
	if b.left < perString {
		b.cut = true
		return list, nil
	}
	b.left -= perString
	s, err := b.text(v, limit)
	return append(list, s), err
}

// addresses returns the source addresses, of a denied request the last ones. The last one is never left out: it alone is not the client's word.
func (b *budget) addresses(v value, denied bool) (list []string, err error) {
	var all []value
	if err := v.elements(func(v value) error { all = append(all, v); return nil }); err != nil || len(all) == 0 {
		return nil, err
	}
	if n := len(all) - deniedAddresses; denied && n > 0 {
		all, b.cut = all[n:], true
	}
	last, err := b.add(nil, all[len(all)-1], maxName)
	if err != nil {
		return nil, err
	}
	for _, v := range all[:len(all)-1] {
		if list, err = b.add(list, v, maxName); err != nil {
			return nil, err
		}
	}
	return append(list, last...), nil
}

// readActor reads who sent the request. What matters most is read first, and is not cut for what follows.
func (p *Parser) readActor(r *Record, e *event) error {
	b := budget{left: maxActor}
	var late []func() error // what may be long
	user := func(v value, u *User) error {
		return v.members(func(name []byte, v value) (err error) {
			switch string(name) {
			case "username":
				u.Name, err = b.text(v, maxName)
			case "uid":
				u.UID, err = b.text(v, maxName)
			case "groups":
				if !p.options.OmitGroups {
					late = append(late, func() (err error) {
						u.Groups, err = b.list(v)
						return err
					})
				}
			case "extra":
				if !p.options.OmitExtra {
					late = append(late, func() (err error) {
						u.Extra, err = b.extra(v)
						return err
					})
				}
			}
			return err
		})
	}
	if err := user(e.user, &r.Actor.User); err != nil {
		return err
	}
	if e.impersonated.isObject() {
		r.Actor.Impersonated = &User{}
		if err := user(e.impersonated, r.Actor.Impersonated); err != nil {
			return err
		}
	}
	var err error
	if r.Actor.UserAgent, err = b.text(e.userAgent, maxAgent); err != nil {
		return err
	}
	if !p.options.OmitSourceIPs {
		if r.Actor.SourceIPs, err = b.addresses(e.sourceIPs, r.Denied()); err != nil {
			return err
		}
	}
	for _, read := range late {
		if err := read(); err != nil {
			return err
		}
	}
	r.Cut = r.Cut || b.cut
	return nil
}

func (b *budget) extra(v value) (map[string][]string, error) {
	extra := map[string][]string{}
	err := v.members(func(name []byte, v value) (err error) {
		if b.left < perString+len(name) {
			b.cut = true
			return nil
		}
		b.left -= perString + len(name)
		extra[string(name)], err = b.list(v)
		return err
	})
	if len(extra) == 0 {
		extra = nil
	}
	return extra, err
}
