package counts

// Opened returns the number of stores that s keeps.
func Opened(s *Stores) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened)
}
