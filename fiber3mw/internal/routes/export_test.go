package routes

import "github.com/gofiber/fiber/v3"

// Table returns the table by which c's route is found.
func (f *Finder) Table(c fiber.Ctx) any { return f.table(c) }
