package consumer

// Ended reports whether an object's end, or its drop, was told.
func (s *State) Ended(uid string) bool {
	for key, k := range s.entries {
		if key.uid == uid {
			return k.object == nil
		}
	}
	return false
}
