"""The page: modules of JavaScript, one style sheet, and the calls that send them to browsers."""
