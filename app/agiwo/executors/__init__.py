"""What carries out one attempt of one kind of step, over the tools and the models.

An executor fills secrets in, makes one call, takes the secrets out of what came back, and answers in the closed vocabulary of its port.
"""
